"""Size of a KV cache and the time to move it.

Per token: 2 (K and V) x layers x KV heads x head dimension x bytes of the type (Vaswani et al. 2017; grouped-query
attention: Ainslie et al. 2023). Multi-head latent attention (DeepSeek-V2, 2024, 2.1) keeps one latent vector a layer and
token instead, which tensor parallelism replicates and does not split.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rdmadiag.errors import BadInput
from rdmadiag.explain._words import refuse, span
from rdmadiag.plan._words import bytes_text, positive, rate_text, values

HELP = "bytes of a KV cache and its time on the wire: model=NAME, or layers= with kv_heads= head_dim= or latent=, tokens= tp= rate="
EXAMPLES = (
    ("model=llama-3-70b", "tokens=4096", "tp=8", "rate=400gbit"),
    ("model=deepseek-v3", "tokens=128000", "block_tokens=64"),
    ("layers=80", "kv_heads=8", "head_dim=128", "dtype_bytes=2"),
    ("layers=61", "latent=576", "block_tokens=64"),
)


class Model(NamedTuple):
    """What the size of a KV cache depends on. `latent`: elements a layer and token of latent attention; 0 for K and V."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype_bytes: float = 2
    latent: int = 0

    @property
    def token_bytes(self) -> float:
        """Bytes of one token in all layers and heads."""
        return self.layers * self.layer_token_bytes

    @property
    def layer_token_bytes(self) -> float:
        """Bytes of one token in one layer, all heads."""
        elements = self.latent or 2 * self.kv_heads * self.head_dim
        return elements * self.dtype_bytes

    def block_bytes(self, block_tokens: int, tensor_parallel: int = 1) -> float:
        """Bytes of one block of one layer on one rank (K and V together): what one transfer moves at least.

        KV heads are split among the ranks, at most one by one; a latent vector is not split.
        """
        share = 1 if self.latent else min(tensor_parallel, self.kv_heads)
        return self.layer_token_bytes * block_tokens / share


PRESETS: dict[str, Model] = {
    "llama-2-7b": Model(32, 32, 128),
    "llama-3-8b": Model(32, 8, 128),
    "llama-3-70b": Model(80, 8, 128),
    "qwen3-8b": Model(36, 8, 128),
    "qwen3-32b": Model(64, 8, 128),
    "qwen3-235b-a22b": Model(94, 4, 128),
    "deepseek-v3": Model(61, 0, 0, 2, 512 + 64),
}
"""Models by name, from their published config.json; 2-byte types."""

PACKET_OVERHEAD_BYTES = 8 + 14 + 20 + 8 + 12 + 4 + 4 + 12
"""What a RoCEv2 packet adds to its payload on the wire: preamble, Ethernet, IPv4, UDP, BTH, ICRC, FCS, gap [bytes]."""


def payload_share(mtu_bytes: int) -> float:
    """Return the share of the line rate that payload gets in full RoCEv2 packets of a path MTU (RETH and ACKs left out)."""
    return mtu_bytes / (mtu_bytes + PACKET_OVERHEAD_BYTES)


_WORDS: dict[str, tuple[str, Any]] = {
    "model": ("name", None),
    "layers": ("count", None),
    "kv_heads": ("count", None),
    "head_dim": ("count", None),
    "latent": ("count", None),
    "dtype_bytes": ("size", None),
    "block_tokens": ("count", 16),
    "tp": ("count", 1),
}


def described(words: Sequence[str], more: Mapping[str, tuple[str, Any]] | None = None) -> tuple[Model, dict[str, Any]]:
    """Return a model told by words (model=NAME or layers= ...), and all values by name: block_tokens, tp, and `more`. Raises BadInput."""
    wanted = {**_WORDS, **(more or {})}
    given = values("kv", words, wanted)
    positive("kv", given, *(name for name in wanted if name != "model"))
    return _model(given), given


def decode(*words: str) -> dict[str, Any]:
    """Answer the bytes of a token, of a block on one rank, of all tokens, and the time to move them. Raises BadInput."""
    model, given = described(words, {"tokens": ("count", 4096), "rate": ("rate", 400e9), "mtu": ("size", 4096.0)})
    block = model.block_bytes(given["block_tokens"], given["tp"])
    total = model.token_bytes * given["tokens"]
    wire = given["rate"] * payload_share(int(given["mtu"])) / 8
    blocks = math.ceil(given["tokens"] / given["block_tokens"]) * model.layers
    return {
        "name": given["model"] or "own model",
        "token": bytes_text(model.token_bytes),
        "token_bytes": model.token_bytes,
        "layer_block": f"{bytes_text(block)} for {given['block_tokens']} tokens of one layer on one of {given['tp']} ranks",
        "layer_block_bytes": block,
        "transfers": f"{blocks} blocks a rank for {given['tokens']} tokens, if neighbours are not merged",
        "all": f"{bytes_text(total)} for {given['tokens']} tokens, all ranks",
        "all_bytes": total,
        "time": f"{span(total / wire)} at {rate_text(given['rate'])} and MTU {given['mtu']:.0f}: the least that one link can take",
        "seconds": total / wire,
        "next": [
            "`rdmadiag plan window` tells how many blocks must be under way, and whether they are large enough",
            "blocks of neighbouring tokens or layers that lie together should be one request",
        ],
        "sources": [
            "2 x layers x KV heads x head dimension x bytes; latent attention: DeepSeek-V2, 2.1",
            "config.json of each model",
        ],
    }


def _model(given: dict[str, Any]) -> Model:
    layers, *heads, latent = own = [given[key] for key in ("layers", "kv_heads", "head_dim", "latent")]
    if given["model"] is None:
        if layers is None or (None in heads if latent is None else heads != [None, None]):
            raise BadInput(
                f"plan kv needs model=NAME ({', '.join(PRESETS)}), or layers= with kv_heads= and head_dim=, or layers= with latent="
            )
        return Model(layers, heads[0] or 0, heads[1] or 0, given["dtype_bytes"] or 2, latent or 0)
    if given["model"].lower() not in PRESETS:
        raise refuse("model", given["model"], "a name, or layers= kv_heads= head_dim=", PRESETS)
    if any(value is not None for value in own):
        raise BadInput("plan kv: model= or layers=, kv_heads=, head_dim= and latent=, not both")
    model = PRESETS[given["model"].lower()]
    return model._replace(dtype_bytes=given["dtype_bytes"]) if given["dtype_bytes"] else model

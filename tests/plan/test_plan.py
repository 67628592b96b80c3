"""Sizes and models: published figures come out, and what makes no sense is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag import plan, registry
from rdmadiag.errors import BadInput
from rdmadiag.plan import ecn, kv, latency, pfc_headroom, window

TOPICS = registry.names(plan)

PUBLISHED = {  # bytes a token in 2-byte types; a block of 16 tokens of one layer
    "llama-2-7b": (524_288, 256 << 10),
    "llama-3-8b": (131_072, 64 << 10),
    "llama-3-70b": (327_680, 64 << 10),
    "qwen3-8b": (147_456, 64 << 10),
    "qwen3-32b": (262_144, 64 << 10),
    "qwen3-235b-a22b": (192_512, 32 << 10),
    "deepseek-v3": (70_272, 18 << 10),
}


@pytest.mark.parametrize("name", kv.PRESETS)
def test_a_preset_has_its_published_size(name: str) -> None:
    token, block = PUBLISHED[name]
    assert kv.PRESETS[name].token_bytes == token
    assert kv.PRESETS[name].block_bytes(16) == block


def test_tensor_parallelism_splits_heads_but_neither_a_head_nor_a_latent_vector() -> None:
    assert kv.PRESETS["llama-3-70b"].block_bytes(16, 8) == 8 << 10
    assert kv.PRESETS["llama-3-70b"].block_bytes(16, 16) == 8 << 10
    assert kv.PRESETS["deepseek-v3"].block_bytes(16, 8) == 18 << 10


def test_128k_tokens_of_a_70b_are_40_gib() -> None:
    answer = kv.decode("model=llama-3-70b", "tokens=131072", "rate=400gbit")
    assert answer["all_bytes"] == 40 << 30
    assert 0.87 < answer["seconds"] < 0.88  # 0.86 s at the raw rate, of which payload gets 98 %


def test_the_payload_share_of_a_packet() -> None:
    assert round(kv.payload_share(4096), 3) == 0.980
    assert round(kv.payload_share(1024), 3) == 0.926


def test_small_reads_cannot_fill_a_fast_link() -> None:
    assert round(window.read_rate(16, 8 << 10, 50e-6) / 1e9) == 21
    assert "cannot fill" in window.decode("rate=100gbit", "rtt=50us", "block=8KiB")["read"]


@pytest.mark.parametrize(
    ("rate", "rtt", "block", "requests"),
    [(100e9, 50e-6, 64 << 10, 11), (100e9, 50e-6, 8 << 10, 78), (400e9, 10e-6, 64 << 10, 9), (1e9, 1e-3, 64 << 10, 3)],
)
def test_the_depth_holds_the_bandwidth_delay_product_and_one_more(
    rate: float, rtt: float, block: int, requests: int
) -> None:
    assert window.depth(rate, rtt, block) == requests


def test_headroom_grows_by_the_cable_there_and_back() -> None:
    short, long = (pfc_headroom.headroom_bytes(100, metres, 9216, 4200) for metres in (0, 99))
    assert short == 9216 + 84 + 394 * 64 + 4200
    assert long - short == pytest.approx(12_500)  # 99 m are 0.5 us: 1 us there and back at 100 Gbit/s


def test_an_mlx5_port_below_40_gbit_has_the_headroom_of_one() -> None:
    assert pfc_headroom.mlx5_xoff_bytes(10, 7, 1500) == pfc_headroom.mlx5_xoff_bytes(40, 7, 1500)


def test_ecn_thresholds_follow_the_rate_and_are_held_against_xoff() -> None:
    assert ecn.thresholds(25e9) == pytest.approx((100e3, 400e3))
    assert ecn.thresholds(100e9) == pytest.approx((400e3, 1600e3))
    assert "above XOFF" in ecn.decode("rate=100gbit", "xoff=1MB")["with_pfc"]
    assert "below XOFF" in ecn.decode("rate=100gbit", "xoff=2MB")["with_pfc"]
    assert "not known" in ecn.decode("rate=100gbit")["with_pfc"]


def test_the_parts_of_a_latency_add_up() -> None:
    small, large = (latency.decode(f"size={size}", "rate=100gbit", "hops=0", "cable=0") for size in ("64B", "1MiB"))
    assert small["seconds"] == pytest.approx(50e-9 + 150e-9 + 300e-9 + 300e-9 + 200e-9 + 300e-9 + (64 + 82) * 8 / 100e9)
    assert large["seconds"] - small["seconds"] == pytest.approx(((1 << 20) + 256 * 82 - 64 - 82) * 8 / 100e9)


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_answers_its_examples_in_json(name: str) -> None:
    module = registry.load(plan, name)
    assert module.EXAMPLES and module.HELP
    for words in module.EXAMPLES:
        answer = module.decode(*words)
        assert {"next", "sources"} <= answer.keys()
        json.dumps(answer)


BAD = {
    "kv": [
        "model=gpt-9",
        "tokens=0",
        "rate=fast",
        "layers=2",
        "layers=2 model=llama-3-8b",
        "x",
        "tokens=-1",
        "rate=400",
        "dtype_bytes=0",
    ],
    "window": [
        "",
        "rate=1gbit rtt=1ms",
        "rate=1gbit rtt=1 block=1",
        "rate=0gbit rtt=1ms block=1K",
        "rate=1gbit rtt=1ms block=0",
    ],
    "pfc-headroom": ["rate=37gbit cable=1m", "rate=100gbit", "rate=100gbit cable=1e9m", "rate=100gbit cable=900000km"],
    "ecn": ["", "rate=100", "rate=100gbit xoff=0"],
    "latency": ["size=1", "size=0 rate=1gbit", "size=64 rate=100gbit post=1h"],
}


@pytest.mark.parametrize(
    ("topic", "words"), [(topic, words) for topic, all_words in BAD.items() for words in all_words]
)
def test_what_makes_no_sense_is_refused_by_name(topic: str, words: str) -> None:
    with pytest.raises(BadInput, match=r"wanted|needs|is none of|not both"):
        registry.load(plan, topic.replace("-", "_")).decode(*words.split())


WORDS = st.text(st.characters(codec="utf-8"), max_size=12) | st.from_regex(
    r"(rate|rtt|block|size|cable|tokens|tp|layers|mtu|hops)=[0-9]{1,18}(\.[0-9])?(gbit|KiB|us|m|ms|)", fullmatch=True
)


@pytest.mark.parametrize("name", TOPICS)
@given(words=st.lists(WORDS, max_size=6))
def test_any_words_are_answered_or_refused(name: str, words: list[Any]) -> None:
    try:
        json.dumps(registry.load(plan, name).decode(*words), allow_nan=False)
    except BadInput as error:
        assert str(error)

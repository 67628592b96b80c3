"""GIDs: what kind an address is, what is embedded in it, and what it is good for.

Kinds: IBA vol 1, 4.1.1; RoCEv2 annex A17; kernel include/rdma/ib_addr.h. EUI-64: RFC 4291, appendix A. `kind` and
`ipv4` are called for every GID table entry of a node, so they only use the C parser.
"""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton  # socket takes ten times as long to import
from typing import Any

from rdmadiag.explain._words import refuse, value_of

HELP = "a GID: its kind, embedded address, and what it can reach"
EXAMPLES = (
    ("fe80:0000:0000:0000:0255:44ff:fe33:2211",),
    ("::ffff:10.0.0.1",),
    ("0000:0000:0000:0000:0000:0000:0000:0000",),
    ("2001:db8::1",),
    ("0000:0000:0000:0000:0000:ffff:0a14:0f02",),
    ("fe80::b859:9f03:00d4:1234",),
)

_ZERO = bytes(16)
_MAPPED = bytes(10) + b"\xff\xff"
_DEFAULT_PREFIX = b"\xfe\x80" + bytes(6)


def _packed(text: str) -> bytes | None:
    try:
        return inet_pton(AF_INET6, text)
    except (OSError, ValueError):  # not an address; a NUL or a surrogate in it
        return None


def full_gid(text: str) -> str | None:
    """Write a GID as eight groups of four hex digits; None when it is not one."""
    raw = _packed(text.strip())
    if raw is None:
        return None
    digits = raw.hex()
    return ":".join(digits[place : place + 4] for place in range(0, 32, 4))


def kind(gid_text: str) -> str | None:
    """Return zero, link_local, ipv4 or ipv6; None for a text that is no GID. About a million calls per second."""
    raw = _packed(gid_text)
    if raw is None:
        return None
    if raw[0] == 0xFE and raw[1] & 0xC0 == 0x80:
        return "link_local"
    if raw.startswith(_MAPPED):
        return "ipv4"
    return "zero" if raw == _ZERO else "ipv6"


def ipv4(gid_text: str) -> str | None:
    """Return the IPv4 address in a ::ffff:a.b.c.d GID in dotted form; None for any other text."""
    raw = _packed(gid_text)
    return inet_ntop(AF_INET, raw[12:]) if raw is not None and raw.startswith(_MAPPED) else None


# kind: meaning, side, causes, next
_KINDS: dict[str, tuple[str, str, list[str], list[str]]] = {
    "zero": (
        "empty entry of the GID table",
        "local configuration",
        ["the netdev has no address, is down, or is in another network namespace (a pod sees zero GIDs)"],
        [
            "give the netdev an IP address, or choose another gid_index",
            "in a container: move or share the netdev too, or use rdma system netns mode shared",
        ],
    ),
    "link_local": (
        "link-local address: reaches its own Ethernet segment or InfiniBand subnet only",
        "none",
        ["RoCE: the default GID that every port has", "InfiniBand: the normal GID, default subnet prefix"],
        [
            "RoCE across routers: choose the index of the IPv4 or global IPv6 GID with type RoCE v2",
            "InfiniBand: nothing to do",
        ],
    ),
    "ipv4": (
        "IPv4 address of the port's netdev; with type RoCE v2 it can be routed",
        "none",
        ["an IPv4 address is configured on the netdev or its VLAN"],
        ["choose the index where gid_attrs/types says RoCE v2: the same address has a RoCE v1 entry beside it"],
    ),
    "ipv6": (
        "IPv6 address of the port's netdev (RoCE), or a GID of another subnet prefix (InfiniBand)",
        "none",
        ["a global or unique local IPv6 address on the netdev", "InfiniBand: the subnet manager set the prefix"],
        ["RoCE: choose the index where gid_attrs/types says RoCE v2"],
    ),
}


def _mac(raw: bytes) -> str | None:
    if raw[11:13] != b"\xff\xfe":
        return None
    return ":".join(f"{byte:02x}" for byte in (raw[8] ^ 0x02, *raw[9:11], *raw[13:16]))


def _read(word: str) -> str:
    # 32 hex digits, or a plain IPv4 address, are GIDs written in another way; a /prefix or %zone is not part of one.
    text = value_of(word).strip().strip("[](),;").partition("/")[0].partition("%")[0]
    if len(text) == 32 and text.isalnum():
        return ":".join(text[at : at + 4] for at in range(0, 32, 4))
    return f"::ffff:{text}" if text.count(".") == 3 and ":" not in text else text


def decode(*words: str) -> dict[str, Any]:
    """Decode a GID. Raises BadInput for a text that is none."""
    text = _read(" ".join(words))
    raw, name = _packed(text), kind(text)
    if raw is None or name is None:
        raise refuse(
            "GID", " ".join(words), "eight groups of hex digits, ::ffff:a.b.c.d, 32 hex digits or an IPv4 address"
        )
    meaning, side, causes, steps = _KINDS[name]
    bare = raw[8:] == bytes(8)
    if name == "link_local" and bare:
        meaning, steps = "link-local prefix without an interface id: not usable", ["choose another gid_index"]
    if raw[0] == 0xFF:
        meaning = "multicast group: never a port's own GID"
        steps = ["it belongs in a multicast join, not in an address"]
    answer: dict[str, Any] = {
        "name": name,
        "gid": ":".join(raw[at : at + 2].hex() for at in range(0, 16, 2)),
        "short": inet_ntop(AF_INET6, raw),
        "meaning": meaning,
        "side": side,
        "causes": causes,
        "next": steps,
        "ipv4": ipv4(text),
        "mac": _mac(raw) if name in ("link_local", "ipv6") else None,
        "routable": name in ("ipv4", "ipv6") and raw[0] != 0xFF,
        "ib_default_prefix": raw.startswith(_DEFAULT_PREFIX),
        "port_guid_if_infiniband": None if name in ("zero", "ipv4") or bare else f"0x{raw[8:].hex()}",
        "sources": [
            "IBA vol 1, 4.1.1 (GID)",
            "RoCEv2: IBA annex A17",
            "kernel drivers/infiniband/core/cache.c, roce_gid_mgmt.c",
            "RFC 4291 (IPv6 addressing)",
        ],
    }
    return answer

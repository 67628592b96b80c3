"""One RoCE frame as bytes: where its headers lie, its fields read and written, its ICRC made valid.

Standard library only: programs that run in a lab's guest, where each import costs, change packets with it. Many frames of a capture
at once are rdmadiag.roce.columns. (IBA vol 1, 9.2, 9.3, annex A17.4.3; kernel rxe_icrc.c)
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from typing import NamedTuple

from rdmadiag.errors import BadInput
from rdmadiag.explain import opcode

UDP_PORT = 4791
BTH_BYTES = 12
ICRC_BYTES = 4
MASKED_V4 = (1, 8, 10, 11)
"""Bytes of the IPv4 header that the ICRC takes as ones."""
BTH_MASKED = 4
SEED = zlib.crc32(b"\xff" * 8)
"""CRC of the ones in the place of the LRH."""
_VLANS = (0x8100, 0x88A8, 0x9100)

# name: header that it lies in, offset there, bytes
FIELDS = {
    "tos": ("L3", 1, 1),
    "ttl": ("L3", 8, 1),
    "ip_id": ("L3", 4, 2),
    "sport": ("UDP", 0, 2),
    "opcode": ("BTH", 0, 1),
    "pkey": ("BTH", 2, 2),
    "dest_qp": ("BTH", 5, 3),
    "psn": ("BTH", 9, 3),
    "va": ("RETH", 0, 8),
    "rkey": ("RETH", 8, 4),
    "length": ("RETH", 12, 4),
    "syndrome": ("AETH", 0, 1),
    "msn": ("AETH", 1, 3),
    "immediate": ("ImmDt", 0, 4),
    "invalidated_rkey": ("IETH", 0, 4),
}
"""Fields that can be read and changed by name; tos, ttl and ip_id are IPv4's. An AtomicETH has va and rkey where a RETH has them."""


class Path(NamedTuple):
    """Who sends to whom: what stands before the BTH. Addresses of one IP version; `vlan` None is untagged."""

    src: str
    dst: str
    src_mac: str
    dst_mac: str
    sport: int = 0xC000
    tos: int = 0
    ttl: int = 64
    vlan: int | None = None

    def back(self) -> Path:
        """Return the path of the answers."""
        return self._replace(src=self.dst, dst=self.src, src_mac=self.dst_mac, dst_mac=self.src_mac)


class Places(NamedTuple):
    """Offsets in a frame: IP header, UDP header, BTH, first byte behind the headers, ICRC; and the BTH opcode."""

    l3: int
    udp: int
    bth: int
    data: int
    icrc: int
    opcode: int


HEADERS_BYTES = tuple(
    BTH_BYTES + sum(opcode.HEADER_BYTES[name] for name in opcode.headers(value)) for value in range(256)
)
"""BTH and extension headers by opcode [bytes]."""


def places(frame: bytes | bytearray | memoryview) -> Places | None:
    """Return where the parts of an Ethernet frame lie; None when it is not a whole RoCEv2 packet. Never raises.

    Fragments, IPv6 with extension headers and opcodes whose headers do not fit are None: nothing of them can be changed by name.
    """
    size, at = len(frame), 12
    kind = _u16(frame, at) if size >= 14 else 0
    while kind in _VLANS and at + 6 <= size:
        at += 4
        kind = _u16(frame, at)
    l3 = at + 2
    if kind == 0x0800 and size >= l3 + 20 and frame[l3] >> 4 == 4:
        length = (frame[l3] & 15) * 4
        if length < 20 or frame[l3 + 9] != 17 or _u16(frame, l3 + 6) & 0x3FFF:
            return None
        udp, end = l3 + length, l3 + _u16(frame, l3 + 2)
    elif kind == 0x86DD and size >= l3 + 40 and frame[l3] >> 4 == 6 and frame[l3 + 6] == 17:
        udp, end = l3 + 40, l3 + 40 + _u16(frame, l3 + 4)
    else:
        return None
    bth = udp + 8
    if end > size or bth + BTH_BYTES + ICRC_BYTES > end or _u16(frame, udp + 2) != UDP_PORT:
        return None
    code = frame[bth]
    data = bth + HEADERS_BYTES[code]
    return Places(l3, udp, bth, data, end - ICRC_BYTES, code) if data <= end - ICRC_BYTES else None


def _u16(frame: bytes | bytearray | memoryview, at: int) -> int:
    return frame[at] << 8 | frame[at + 1]


def field_at(name: str, at: Places) -> tuple[int, int] | None:
    """Return offset and size of a field in a frame, None where its opcode has none. Raises BadInput for an unknown name."""
    if name not in FIELDS:
        raise BadInput(f"no field {name!r} of a RoCE packet; known: {', '.join(FIELDS)}")
    header, offset, size = FIELDS[name]
    start = {"L3": at.l3, "UDP": at.udp, "BTH": at.bth}.get(header)
    if start is None:
        start = at.bth + BTH_BYTES
        for other in opcode.headers(at.opcode):
            if other == header or (other == "AtomicETH" and name in ("va", "rkey")):
                break
            start += opcode.HEADER_BYTES[other]
        else:
            return None
    return start + offset, size


def get(frame: bytes | bytearray | memoryview, name: str, at: Places) -> int | None:
    """Return the value of a field; None where the packet has none."""
    found = field_at(name, at)
    return int.from_bytes(frame[found[0] : sum(found)], "big") if found else None


def put(frame: bytearray | memoryview, name: str, value: int, at: Places) -> bool:
    """Write a field; False where the packet has none. The ICRC is left as it was: `seal` makes it valid."""
    found = field_at(name, at)
    if found is None:
        return False
    frame[found[0] : sum(found)] = (value % (1 << 8 * found[1])).to_bytes(found[1], "big")
    return True


def packet_icrc(l3: bytes | bytearray | memoryview, l4_offset: int) -> int:
    """Return the ICRC of a packet from the first byte of its IP header (or GRH) to its last pad byte.

    `l4_offset`: where the UDP header starts in it; for RoCEv1 where the BTH starts, that is 40, the version of IP being 6.
    The value is as an integer; on the wire `value.to_bytes(4, "little")`. Raises ValueError when the headers are not whole.
    """
    version = l3[0] >> 4 if l3 else 0
    udp = version == 4 or (len(l3) > 6 and l3[6] != 0x1B)
    bth = l4_offset + (8 if udp else 0)
    if version not in (4, 6) or len(l3) < bth + 12:
        raise ValueError("wanted an IPv4 or IPv6 header (or GRH), UDP and a whole BTH")
    masked = bytearray(l3[: bth + 12])
    if version == 4:
        for at in MASKED_V4:
            masked[at] = 0xFF
    else:
        masked[0:4] = bytes([masked[0] | 0x0F, 0xFF, 0xFF, 0xFF])
        masked[7] = 0xFF
    if udp:
        masked[l4_offset + 6 : l4_offset + 8] = b"\xff\xff"
    masked[bth + BTH_MASKED] = 0xFF
    return zlib.crc32(memoryview(l3)[bth + 12 :], zlib.crc32(masked, SEED))


def seal(frame: bytearray | memoryview, at: Places) -> None:
    """Make the IPv4 header checksum and the ICRC of a changed frame valid; a UDP checksum is taken out (0)."""
    if frame[at.l3] >> 4 == 4:
        frame[at.l3 + 10 : at.l3 + 12] = b"\0\0"
        frame[at.l3 + 10 : at.l3 + 12] = checksum(frame[at.l3 : at.udp]).to_bytes(2, "big")
    frame[at.udp + 6 : at.udp + 8] = b"\0\0"
    value = packet_icrc(memoryview(frame)[at.l3 : at.icrc], at.udp - at.l3)
    struct.pack_into("<I", frame, at.icrc, value)


def mark_ce(frame: bytearray | memoryview, at: Places) -> None:
    """Mark a frame as having met congestion (RFC 3168), the IPv4 checksum with it; its ICRC stays valid, for it leaves the marks out."""
    if frame[at.l3] >> 4 == 4:
        frame[at.l3 + 1] |= 3
        frame[at.l3 + 10 : at.l3 + 12] = b"\0\0"
        frame[at.l3 + 10 : at.l3 + 12] = checksum(frame[at.l3 : at.udp]).to_bytes(2, "big")
    else:
        frame[at.l3 + 1] |= 0x30


def checksum(header: bytes | bytearray | memoryview) -> int:
    """Return the Internet checksum of a header of whole 16-bit words (RFC 1071)."""
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def build(path: Path, body: bytes, lie: int = 0) -> bytes:
    """Return a frame with a valid ICRC around `body`: BTH, extension headers, payload and pad bytes.

    `lie` is added to the lengths that IP and UDP claim [bytes]. Raises BadInput for addresses that are none.
    """
    try:
        source, target = ipaddress.ip_address(path.src), ipaddress.ip_address(path.dst)
        macs = bytes.fromhex(path.dst_mac.replace(":", "")) + bytes.fromhex(path.src_mac.replace(":", ""))
    except ValueError as error:
        raise BadInput(f"the path of a packet: {error}") from error
    if source.version != target.version or len(macs) != 12:
        raise BadInput(
            f"the path of a packet: wanted two addresses of one IP version and two MAC addresses of 6 bytes, got {path}"
        )
    length = 8 + len(body) + ICRC_BYTES + lie
    udp = struct.pack(">HHHH", path.sport, UDP_PORT, length & 0xFFFF, 0)
    if source.version == 4:
        head = bytearray(struct.pack(">BBHHHBBH", 0x45, path.tos, 20 + length & 0xFFFF, 0, 0x4000, path.ttl, 17, 0))
        head += source.packed + target.packed
        head[10:12] = checksum(head).to_bytes(2, "big")
    else:
        head = bytearray(struct.pack(">IHBB", 6 << 28 | path.tos << 20, length & 0xFFFF, 17, path.ttl))
        head += source.packed + target.packed
    tag = b"" if path.vlan is None else struct.pack(">HH", 0x8100, path.vlan)
    kind = b"\x08\x00" if source.version == 4 else b"\x86\xdd"
    packet = bytes(head) + udp + body
    return macs + tag + kind + packet + packet_icrc(packet, len(head)).to_bytes(4, "little")

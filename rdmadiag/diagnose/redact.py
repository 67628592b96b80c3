"""Replace host names, addresses, GIDs, MACs, GUIDs and UUIDs in texts, the same one always by the same, so that joins still work.

An address keeps its kind and what subnet it shares with others (prefix-preserving, as Xu and others describe in
"Prefix-preserving IP address anonymization", 2002), a MAC and a GUID keep their vendor, and a GID made of a MAC or an IPv4
address is made of the replaced one. With the same key, bundles of several nodes still fit together.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
import re

_UUID = r"(?P<uuid>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b)"
_COLONS = r"(?P<colons>(?<![\w:.])[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:]*(?:(?<=:)\d{1,3}(?:\.\d{1,3}){3})?(?![\w:]))"
_FOUR = r"(?P<four>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]))(?P<length>/\d{1,2}\b)?"
_NAMED = r"(?P<named>(?<=\benx)[0-9a-fA-F]{12}\b)"
_GUID = r"(?P<guid>guid\W{1,3}0x[0-9a-fA-F]{16}\b)"  # other numbers of 16 digits are addresses of memory
_KEPT_BITS = ((0x0A000000, 8), (0xAC100000, 12), (0xC0A80000, 16), (0x64400000, 10), (0xA9FE0000, 16))


class Redactor:
    """Replaces what would tell whose node it is. `key`: any bytes; `names`: host names to replace."""

    def __init__(self, key: bytes, names: list[str]) -> None:
        self.key = key
        whole = sorted(
            {part for name in names for part in (name, name.partition(".")[0]) if part}, key=len, reverse=True
        )
        host = "|".join(map(re.escape, whole)) or r"(?!)"
        self.pattern = re.compile(
            rf"{_UUID}|{_COLONS}|{_FOUR}|{_NAMED}|{_GUID}|(?P<host>(?<![\w.-])(?:{host})(?![\w-]))", re.I
        )
        self.bits = functools.lru_cache(maxsize=1 << 16)(self._bits)

    def __call__(self, text: str) -> str:
        """Return a text with all of them replaced."""
        return self.pattern.sub(self._one, text)

    def _one(self, match: re.Match[str]) -> str:
        kind = match.lastgroup if match.lastgroup != "length" else "four"
        text = match[0]
        if kind == "host":
            return f"node-{self._digits(text.partition('.')[0].lower(), 6)}"
        if kind == "uuid":
            digits = self._digits(text.lower(), 32)
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        if kind == "named":
            return self._mac(int(text, 16)).to_bytes(6, "big").hex()
        if kind == "guid":
            return f"{text[:-16]}{self._interface(int(text[-16:], 16)):016x}"
        if kind == "four":
            return self._four_text(match["four"], match["length"] or "")
        return self._colons(text)

    def _digits(self, text: str, count: int) -> str:
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()[:count]

    def _bits(self, value: int, size: int, kept: int) -> int:
        # Each bit behind the kept ones is turned over or not, by what stands before it: equal prefixes stay equal.
        result = value
        for place in range(kept, size):
            prefix = value >> (size - place)
            if hmac.digest(self.key, f"{size}/{place}/{prefix}".encode(), "sha256")[0] & 1:
                result ^= 1 << (size - place - 1)
        return result

    # --- addresses ---

    def _four_text(self, text: str, length: str) -> str:
        try:
            address = int(ipaddress.IPv4Address(text))
        except ValueError:
            return text + length
        new = self._four(address)
        size = int(length[1:]) if length else 32
        if length and size <= 32 and not address & ((1 << (32 - size)) - 1):
            new &= ~((1 << (32 - size)) - 1)  # the address of a network stays one
        return str(ipaddress.IPv4Address(new)) + length

    def _four(self, address: int) -> int:
        first = address >> 24
        if first in (0, 127) or first >= 224:
            return address
        kept = next((bits for start, bits in _KEPT_BITS if address >> (32 - bits) == start >> (32 - bits)), 8)
        return self.bits(address, 32, kept)

    def _six(self, address: int) -> int:
        high, low = address >> 64, address & ((1 << 64) - 1)
        if address < 2 or high >> 56 == 0xFF:
            return address
        if not high and low >> 32 == 0xFFFF:
            return 0xFFFF << 32 | self._four(low & 0xFFFFFFFF)
        kept = 64 if high >> 54 == 0x3FA else 16  # fe80::/10 is followed by zeros
        return self.bits(high, 64, kept) << 64 | self._interface(low)

    def _interface(self, low: int) -> int:
        if (low >> 24) & 0xFFFF == 0xFFFE:  # made of a MAC, whose second bit is turned over
            mac = self._mac((low >> 40 << 24 | low & 0xFFFFFF) ^ 0x020000000000)
            mac ^= 0x020000000000
            return mac >> 24 << 40 | 0xFFFE << 24 | mac & 0xFFFFFF
        return self.bits(low, 64, 24) if low >> 40 else self.bits(low, 64, 48) if low else 0

    def _mac(self, mac: int) -> int:
        return mac if mac in (0, (1 << 48) - 1) or mac >> 40 & 1 else self.bits(mac, 48, 24)

    def _colons(self, text: str) -> str:
        parts = text.split(":")
        sizes = {len(part) for part in parts}
        upper = text != text.lower()
        new = text
        if sizes == {2} and len(parts) == 6:
            new = _octets(self._mac(int("".join(parts), 16)), 6)
        elif sizes == {2} and len(parts) == 8:
            new = _octets(self._interface(int("".join(parts), 16)), 8)
        elif sizes == {2} and len(parts) == 20:  # IPoIB: flags and QPN, then the GID
            new = ":".join(parts[:4]) + ":" + _octets(self._six(int("".join(parts[4:]), 16)), 16)
        elif sizes == {4} and len(parts) == 4:
            new = _groups(self._interface(int("".join(parts), 16)), 4)
        elif sizes == {4} and len(parts) == 8:
            new = _groups(self._six(int("".join(parts), 16)), 8)
        else:
            try:
                new = str(ipaddress.IPv6Address(self._six(int(ipaddress.IPv6Address(text)))))
            except ValueError:
                return text
        return new.upper() if upper else new


def _octets(value: int, count: int) -> str:
    return value.to_bytes(count, "big").hex(":")


def _groups(value: int, count: int) -> str:
    return value.to_bytes(2 * count, "big").hex(":", 2)

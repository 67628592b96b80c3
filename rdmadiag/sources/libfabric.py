"""What libfabric offers, as fi_info prints it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rdmadiag.evidence.row import Line, Row, Text
from rdmadiag.patterns import late

TABLES = ("fabric_provider",)

_PROVIDER = late(r"provider: (?P<provider>[\w;]{2,60})\s*$")
_FIELD = late(r"\s+(?P<key>fabric|domain|type|protocol): (?P<text>\S{1,100})\s*$")


def parse(lines: Sequence[Line]) -> Iterator[Row]:
    """Parse `fi_info`: one block an endpoint type of a provider."""
    values: dict[str, str] = {}
    at = 0
    for number, text in lines:
        if match := _PROVIDER.match(text):
            if values:
                yield Row("fabric_provider", values, at)
            values, at = {"provider": match["provider"]}, number
        elif values and (match := _FIELD.match(text)):
            values.setdefault(match["key"], match["text"])
    if values:
        yield Row("fabric_provider", values, at)


TEXTS = (Text("fi_info", (r"^provider: [a-z;_]+[ \t\r]*$", r"^ +protocol: FI_PROTO_"), parse, ("fi_info",)),)

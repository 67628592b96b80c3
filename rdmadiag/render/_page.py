"""The frame of a report as one HTML file that needs nothing else: it opens offline, runs no script and loads no font."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from rdmadiag.render._line import CONTROL

_STYLE = """
:root{color-scheme:light dark;--ink:#212529;--dim:#6c757d;--line:#dee2e6;--paper:#fff;--soft:#f1f3f5;--yes:#2b8a3e;--no:#c92a2a;
--unknown:#e67700;--width:1080px}
@media(prefers-color-scheme:dark){:root{--ink:#e9ecef;--dim:#adb5bd;--line:#495057;--paper:#16191d;--soft:#212529;--yes:#69db7c;--no:#ff8787;
--unknown:#ffa94d}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:var(--width);margin:0 auto;padding:0 20px 60px}
header{color:#fff;padding:22px 0}header div{max-width:var(--width);margin:0 auto;padding:0 20px}
header b{font-size:30px}header p{margin:2px 0;max-width:100ch}
h2{font-size:17px;margin:34px 0 8px;border-bottom:1px solid var(--line);padding-bottom:4px}h3{font-size:15px;margin:16px 0 2px}
table{border-collapse:collapse;font-size:14px}th{text-align:left;font-weight:600;color:var(--dim)}
th,td{padding:4px 10px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
.yes{color:var(--yes);font-weight:700}.no{color:var(--no);font-weight:700}.unknown{color:var(--unknown);font-weight:700}
.dim{color:var(--dim)}code{font-size:13px}details{margin:6px 0}summary{cursor:pointer}
"""


def page(title: str, colour: str, head: str, style: str, body: Iterable[str]) -> str:
    """Return a page: `title` is text, `head` (on `colour`) and `body` are markup, `style` is added to what all reports have."""
    return "\n".join(_lines(title, colour, head, style, body))


def _lines(title: str, colour: str, head: str, style: str, body: Iterable[str]) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>{text(title)}</title><style>{_STYLE}{style}</style></head><body>"
    yield f'<header style="background:{colour}"><div>{head}</div></header><main>'
    yield from body
    yield "</main></body></html>"


def text(value: Any) -> str:
    """Return what was read from a run as text of a page, never markup."""
    return escape("" if value is None else CONTROL.sub(lambda c: "\n" if "\n" in c[0] else " ", str(value)))

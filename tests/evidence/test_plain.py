"""Pasted bytes made plain: encodings, line ends, colours, and what containers wrap around lines."""

import io
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.errors import BadFile
from rdmadiag.evidence import plain
from rdmadiag.evidence.plain import clean, from_json_log, is_json_log, is_wrapped, unwrapped

LATER = time.monotonic() + 1e6


def pieces(content, deadline=LATER):
    found = plain.Pieces("x", io.BytesIO(content), deadline)
    return b"".join(found), found


@pytest.mark.parametrize(
    "content",
    [
        "a \u20ac\nb\n".encode(),
        "\ufeffa \u20ac\nb\n".encode(),
        "a \u20ac\nb\n".encode("utf-16"),
        b"\xfe\xff" + "a \u20ac\nb\n".encode("utf-16-be"),
        "a \u20ac\r\nb\r\n".encode(),
        b"\x1b[31;1ma\x1b[0m \xe2\x82\xac\n\x1b(B\x1b]0;title\x07b\n",
    ],
)
def test_encodings_line_ends_and_colours_make_no_difference(content):
    assert pieces(content)[0] == "a \u20ac\nb\n".encode()


def test_utf_16_is_read_to_its_end(monkeypatch):
    monkeypatch.setattr(plain, "PIECE_BYTES", 7)
    monkeypatch.setattr(plain, "FIRST_BYTES", 7)
    text = "line one\nline two \U0001f600\n" * 20
    assert pieces(text.encode("utf-16"))[0] == text.encode()


def test_an_unended_title_does_not_eat_the_lines_below():
    assert pieces(b"\x1b]0;title\nNCCL WARN x\n")[0] == b"\nNCCL WARN x\n"


def test_pieces_end_at_line_ends(monkeypatch):
    monkeypatch.setattr(plain, "PIECE_BYTES", 10)
    monkeypatch.setattr(plain, "FIRST_BYTES", 10)
    assert list(plain.Pieces("x", io.BytesIO(b"abc\ndefghijkl\nm"), LATER)) == [b"abc\n", b"defghijkl\n", b"m"]


def test_binary_says_where():
    with pytest.raises(BadFile, match="byte 3: binary"):
        pieces(b"abc\0def")


def test_a_zero_far_behind_is_shown_as_none():
    assert (
        clean(b"a\0b\x07\x1b[2J\xff \x9b \xc2\x9b \xe2\x80\xae") == "a\ufffdb\ufffd\ufffd[2J\ufffd \ufffd \ufffd \ufffd"
    )


def test_when_time_is_up_the_rest_is_not_read():
    content, found = pieces(b"x\n" * 9_000_000, time.monotonic() - 1)
    assert found.timeout and "in time" in found.problem and len(content) == plain.FIRST_BYTES


@given(st.binary(max_size=200))
def test_no_terminal_obeys_a_clean_line(line):
    text = clean(line)
    assert not any((ord(c) < 32 and c != "\t") or 127 <= ord(c) < 160 for c in text.replace("\n", ""))


def test_docker_lines_become_what_the_program_printed():
    log = b'{"log":"NCCL \\u001b[31mWARN\\u001b[0m x\\n","stream":"stderr","time":"2026-02-02T09:56:04.48Z"}\nplain\n'
    assert is_json_log(log)
    assert from_json_log(log) == b"2026-02-02T09:56:04.48Z NCCL WARN x\nplain\n"


def test_lines_of_journald_keep_host_and_program():
    entry = {
        "MESSAGE": "mlx5_core 0000:18:00.0: x",
        "_HOSTNAME": "node-a",
        "SYSLOG_IDENTIFIER": "kernel",
        "__REALTIME_TIMESTAMP": "1770026164000000",
    }
    assert from_json_log(json.dumps(entry).encode()) == (
        b"2026-02-02T09:56:04+0000 node-a kernel: mlx5_core 0000:18:00.0: x"
    )


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": 1}', b'[{"log": "x"}]', b"x", b'{"log": 5}'])
def test_other_text_is_no_json_log(text):
    assert not is_json_log(text)


@pytest.mark.parametrize(
    "prefix,host",
    [
        (b"[pod/vllm-0/server] ", "vllm-0"),
        (b"2026-02-02T09:56:04.481234567Z ", None),
        (b"2026-02-02T09:56:04.481234567Z stdout F ", None),
        (b"[pod/vllm-0/server] 2026-02-02T09:56:04Z ", "vllm-0"),
        (b"Feb  2 09:56:04 node-a rdma.sh[77]: ", "node-a"),
        (b"2026-02-02T09:56:04+0000 node-a rdma.sh[77]: ", "node-a"),
        (b"vllm-1  | ", "vllm-1"),
        (b"3: ", None),
        (b"[1,3]<stdout>:", None),
    ],
)
def test_what_stands_before_every_line_is_taken_off(prefix, host):
    text = b"\n".join(prefix + line for line in (b"hca_id:\tmlx5_0", b"\tport:\t1", b"\t\tstate:\tPORT_ACTIVE (4)"))
    assert is_wrapped(text)
    ((key, lines),) = unwrapped(text).items()
    assert key[1] == host
    assert lines == [(0, b"hca_id:\tmlx5_0"), (1, b"\tport:\t1"), (2, b"\t\tstate:\tPORT_ACTIVE (4)")]


def test_lines_of_two_printers_are_kept_apart():
    found = unwrapped(b"0: a\n1: b\n0: c\n1: d")
    assert [[line for _, line in lines] for lines in found.values()] == [[b"a", b"c"], [b"b", b"d"]]


@pytest.mark.parametrize(
    "text", [b"hca_id:\tmlx5_0\n\tport:\t1\n", b"[   12.345678] mlx5_core: x\n", b"", b"CA 'mlx5_0'\n"]
)
def test_plain_text_is_not_wrapped(text):
    assert not is_wrapped(text)


@given(
    st.lists(st.sampled_from([b"\n", b"a\n", b"some words that go on for a while\r\n", b"x"]), max_size=40), st.data()
)
def test_line_ends_are_as_many_as_count_says(parts, data):
    text = b"".join(parts) * 4000
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    assert plain.line_ends(text, start, end) == text.count(b"\n", start, end)

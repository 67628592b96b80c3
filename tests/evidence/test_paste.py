"""Texts are known by content; sections, prompts, wrappers and JSON; log lines with their age; bounded whatever comes."""

import io
import json
import time

import pytest

from rdmadiag.errors import BadFile
from rdmadiag.evidence import paste
from rdmadiag.evidence.given import GivenText
from rdmadiag.evidence.row import Gap, Json, Printed, Row, Rows, Text
from rdmadiag.evidence.texts import Library

DAY = 86400.0


def parse_tool(lines):
    for line in lines:
        if line.text.startswith("value "):
            yield Row("tool", {"value": line.text[6:]}, line.number)


def parse_seen(lines):
    yield Row("seen", {"lines": [(line.number, line.text) for line in lines]}, lines[0].number)


def parse_json(objects):
    yield Rows("qp", ("qpn",), [(entry.get("lqpn"),) for entry in objects], 1)


TEXTS = [
    ("a", Text("tool", (r"^tool v[0-9]",), parse_tool, ("tool",))),
    ("b", Text("window", (r"WINDOW",), parse_seen, ("window",), by_line=True, log="application")),
    ("c", Text("dmesg", (r"^\[ *[0-9]+\.[0-9]{6}\] ",), lambda lines: (), ("dmesg",), log="kernel")),
    ("d", Json("qps", (("lqpn", "type"),), parse_json, ("rdma",))),
    ("e", Text("spaced", (r"^begin$",), parse_seen)),
]
PATTERNS = [
    ("flap", 0, "kernel", r"(?P<netdev>\w+): Link down"),
    ("warn", 0, "application", r"NCCL WARN (?P<value>\w+)"),
    ("other", 0, "application", r"NCCL WARN other"),
]
LIBRARY = Library(TEXTS, PATTERNS, cached=False)


def read(content, *, recent=DAY, deadline=None, path="x.txt", stream=None):
    content = content.encode() if isinstance(content, str) else content
    given = GivenText(None, path, "g", stream or io.BytesIO(content))
    return paste.read_text(LIBRARY, given, deadline or time.monotonic() + 60, recent)


def rows(found, table):
    return [item for _, _, item in found.items if isinstance(item, (Row, Rows)) and item.table == table]


def values(found, table, name):
    return [row.values.get(name) for row in rows(found, table)]


def gaps(found):
    return [item for _, _, item in found.items if isinstance(item, Gap)]


def readings(found):
    return {row.values["source"]: (row.values["log"], row.values["complete"]) for row in rows(found, "reading")}


# --- what a text is ---


def test_a_tool_is_known_by_content():
    found = read("tool v1\nvalue 5\n")
    assert [(row.values, row.at) for row in rows(found, "tool")] == [({"value": "5"}, 2)]
    assert found.tools == ["tool"] and found.recognised and readings(found) == {"tool": (None, None)}


def test_a_tool_whose_output_has_no_sign_is_known_by_its_prompt():
    found = read("$ tool --all\nvalue 5\n$ other\nvalue 6\n")
    assert [(row.values["value"], row.at) for row in rows(found, "tool")] == [("5", 2)]


@pytest.mark.parametrize(
    "prompt,host",
    [
        ("$ ", None),
        ("# ", None),
        ("root@node-a:~# ", "node-a"),
        ("[root@node-a ~]# ", "node-a"),
        ("(venv) me@node-a:~/x$ ", "node-a"),
        ("+ ", None),
        ("bash-5.1# ", None),
        ("node-a:~ # ", None),
        ("  $ ", None),
        ("> ", None),
    ],
)
def test_prompts_of_every_kind_begin_a_section(prompt, host):
    found = read(f"x\n{prompt}sudo /usr/bin/tool -v\nvalue 5\n")
    assert [(source, who, item.at) for source, who, item in found.items if item.table == "tool"] == [("a", host, 3)]
    assert found.hosts == ([host] if host else [])


@pytest.mark.parametrize("line", ["# value of a comment", "50% done", "> quoted words", "a -> b", "+5 added", "x$y"])
def test_lines_that_look_like_prompts_begin_none(line):
    found = read(f"tool v1\n{line}\nvalue 5\n")
    assert values(found, "tool", "value") == ["5"]


def test_sections_of_two_hosts_are_apart():
    found = read("root@a:~# tool\nvalue 1\nroot@b:~# tool\nvalue 2\n")
    assert [(host, item.values["value"]) for _, host, item in found.items if item.table == "tool"] == [
        ("a", "1"),
        ("b", "2"),
    ]


def test_the_prompt_line_is_handed_to_the_parser_as_a_command():
    found = read("x\nroot@a:~# tool -x 5\nbegin\n")
    assert rows(found, "seen")[0].values["lines"] == [(2, "$ tool -x 5"), (3, "begin"), (4, "")]


def test_windows_line_ends_change_nothing():
    found = read(b"begin\r\nx\r\n")
    assert rows(found, "seen")[0].values["lines"] == [(1, "begin"), (2, "x"), (3, "")]


def test_utf_16_of_a_windows_shell_is_read():
    assert values(read("tool v1\r\nvalue 5\r\n".encode("utf-16")), "tool", "value") == ["5"]


@pytest.mark.parametrize(
    "prefix,host",
    [
        ("2026-02-02T09:56:04.48Z ", None),
        ("[pod/vllm-0/server] ", "vllm-0"),
        ("Feb  2 09:56:04 node-a unit[7]: ", "node-a"),
        ("vllm-1  | ", "vllm-1"),
    ],
)
def test_a_tools_output_behind_the_prefix_of_a_log_is_known(prefix, host):
    found = read("".join(f"{prefix}{line}\n" for line in ("starting", "tool v1", "value 5")))
    assert [(who, item.values, item.at) for _, who, item in found.items if item.table == "tool"] == [
        (host, {"value": "5"}, 3)
    ]
    assert found.hosts == ([host] if host else [])


def test_two_printers_in_one_log_are_parsed_apart():
    found = read("0: tool v1\n1: tool v1\n0: value 5\n1: value 6\n")
    assert sorted((item.values["value"], item.at) for item in rows(found, "tool")) == [("5", 3), ("6", 4)]


def test_a_log_in_docker_json_lines_is_read():
    log = "".join(
        json.dumps({"log": f"{line}\n", "time": "2026-02-02T09:56:04.48Z"}) + "\n"
        for line in ("\x1b[1mtool v1", "value 5", "NCCL WARN x")
    )
    found = read(log)
    assert values(found, "tool", "value") == ["5"]
    assert [(r.values["value"], r.values["time"], r.at) for r in rows(found, "log")] == [
        ("x", "2026-02-02T09:56:04.48Z", 3)
    ]


@pytest.mark.parametrize("content", ["", "\n \n", b"\xef\xbb\xbf"])
def test_an_empty_text_is_an_error(content):
    with pytest.raises(BadFile, match="empty"):
        read(content)


def test_binary_is_an_error():
    with pytest.raises(BadFile, match="binary"):
        read(b"\x7fELF\0\0")


def test_text_that_nothing_knows_is_not_recognised_and_is_no_log():
    found = read("a poem\nabout nothing\n")
    assert not found.recognised and readings(found) == {}


def test_a_calm_log_is_a_log():
    found = read("2026-02-02 09:56:04 INFO all is well\n")
    assert not found.recognised and readings(found) == {"text": ("application", None)}


# --- JSON ---

QPS = [{"lqpn": n, "type": "RC"} for n in range(3)]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(QPS),
        json.dumps(QPS, indent=2),
        "\n  " + json.dumps(QPS) + "\n\n",
        f"$ rdma -d -j res show qp\n{json.dumps(QPS)}\n$ echo\n",
        f"=== qps ===\n{json.dumps(QPS)}\nreal 0.1s\n",
        f"=== qps ===\n{json.dumps(QPS, indent=4)}\nreal 0.1s\n",
        json.dumps(QPS) + "\ntrailing words\n",
    ],
)
def test_json_of_a_tool_is_known_by_its_keys_wherever_it_stands(content):
    (found,) = rows(read(content), "qp")
    assert list(found.tuples) == [(0,), (1,), (2,)]
    assert found.at == content[: content.index("[")].count("\n") + 1


def test_text_beside_json_is_read_too():
    found = read(json.dumps(QPS) + "\ntool v1\nvalue 5\nNCCL WARN x\n")
    assert len(rows(found, "qp")) == 1
    assert [(r.values["value"], r.at) for r in rows(found, "tool")] == [("5", 3)]
    assert [r.at for r in rows(found, "log")] == [4]


def test_json_that_is_cut_off_gives_what_is_before_that_and_a_gap():
    found = read(json.dumps(QPS)[:-15])
    assert list(rows(found, "qp")[0].tuples) == [(0,), (1,)]
    assert [(gap.kind, gap.tables) for gap in gaps(found)] == [("truncated", ("qp",))]


def test_json_nested_too_deeply_is_one_gap():
    found = read('{"a":' * 100_000)
    assert ["deeply" in gap.reason for gap in gaps(found)] == [True]


def test_json_of_no_tool_is_matched_as_text():
    assert values(read('{"message": ["NCCL WARN x"]}'), "log", "value") == ["x"]


def test_json_with_too_many_values_is_a_gap(monkeypatch):
    monkeypatch.setattr(paste, "JSON_OBJECTS", 3)
    found = read(json.dumps(QPS))
    assert rows(found, "qp") == [] and ["too many" in gap.reason for gap in gaps(found)] == [True]


@pytest.mark.parametrize("data", [b"", b"x", b"{", b"[[", b"{x[x", b"[{}, {}]", b"{" * 9])
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 8, 9])
def test_values_are_counted_as_far_as_the_limit(data, limit):
    assert paste._at_most(limit, data, b"{", b"[") == (data.count(b"{") + data.count(b"[") <= limit)


def test_a_kernel_log_is_not_taken_for_json():
    assert rows(read("[    1.000000] eth0: Link down\n"), "log")


# --- log lines ---


def test_a_line_that_a_pattern_matches_is_a_row_with_its_groups_and_origin():
    found = read("x\n[    1.500000] eth0: Link down\n")
    (row,) = rows(found, "log")
    assert row.at == 2
    assert {k: row.values[k] for k in ("log", "rule", "pattern", "netdev", "time", "text")} == {
        "log": "kernel",
        "rule": "flap",
        "pattern": 0,
        "netdev": "eth0",
        "time": "1.500000",
        "text": "[    1.500000] eth0: Link down",
    }


def test_a_line_that_two_patterns_match_is_two_rows():
    assert values(read("NCCL WARN other\n"), "log", "rule") == ["warn", "other"]


def test_ages_count_from_the_end_of_the_log():
    log = "[    1.000000] eth0: Link down\n[90001.000000] eth1: Link down\n[90002.000000] bye\ntrace\n"
    found = read(log)
    assert values(found, "log", "age_seconds") == [90001.0, 1.0]
    assert values(found, "log", "recent") == [0, 1]
    assert values(read(log, recent=0.5), "log", "recent") == [0, 0]
    assert values(read(log, recent=1e6), "log", "recent") == [1, 1]


def test_each_section_has_an_end_of_its_own():
    found = read("$ dmesg\n[    1.000000] eth0: Link down\n[  100.000000] bye\n$ tool\nvalue 5\n")
    assert values(found, "log", "age_seconds") == [99.0]


def test_a_line_without_a_time_has_no_age():
    found = read("NCCL WARN x\n")
    assert values(found, "log", "age_seconds") == [None] and values(found, "log", "recent") == [None]


def test_times_of_two_clocks_are_not_compared():
    found = read("[    1.000000] eth0: Link down\n2026-02-02 09:56:04 bye\n[    2.000000] x\n2026-02-02 09:56:05 y\n")
    assert values(found, "log", "age_seconds") == [1.0]


def test_the_host_of_a_line_is_its_own_then_its_prompts_then_that_of_the_line_before():
    found = read("NCCL WARN a\nnode-b:1:2 [0] NCCL WARN b\nNCCL WARN c\nroot@node-d:~# cat log\nNCCL WARN d\n")
    assert [host for _, host, item in found.items if item.table == "log"] == [None, "node-b", "node-b", "node-d"]


def test_of_a_flood_the_first_and_the_last_lines_are_kept(monkeypatch):
    monkeypatch.setattr(paste, "ROWS_PER_PATTERN", 10)
    found = read("".join(f"[{n:5d}.000000] eth0: Link down\n" for n in range(1000)))
    assert [row.at for row in rows(found, "log")] == [1, 2, 3, 4, 5, 996, 997, 998, 999, 1000]


def test_a_line_without_end_is_cut():
    found = read("NCCL WARN x" + "y" * 3_000_000)
    (row,) = rows(found, "log")
    assert len(row.values["text"]) == paste.LOG_CHARACTERS


def test_control_characters_never_reach_a_row():
    found = read("NCCL WARN x \x1b[2J\x1b]0;t\x07 \x07\x9b31m\r\n")
    assert values(found, "log", "text") == ["NCCL WARN x  \ufffd\ufffd31m"]


# --- by line ---


def test_a_parser_by_line_gets_matching_lines_each_with_six_that_follow():
    text = [f"line {n}" for n in range(1, 41)]
    for n in (3, 7, 30):
        text[n - 1] = f"WINDOW {n}"
    (row,) = rows(read("\n".join(text)), "seen")
    assert [number for number, _ in row.values["lines"]] == [*range(3, 14), *range(30, 37)]


def test_what_a_prompt_announces_is_not_parsed_twice():
    assert len(rows(read("$ window\nWINDOW 1\n"), "seen")) == 1


def test_a_log_that_is_known_by_line_is_a_reading():
    assert readings(read("WINDOW 1\n")) == {"window": ("application", None)}


# --- long texts ---


def test_of_a_long_log_all_lines_are_matched(monkeypatch):
    monkeypatch.setattr(paste, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(paste.plain, "PIECE_BYTES", 300)
    monkeypatch.setattr(paste.plain, "FIRST_BYTES", 300)
    log = "".join(f"[{n:5d}.000000] {'eth0: Link down' if n % 50 == 0 else 'calm'}\n" for n in range(1000))
    found = read(log)
    assert [row.at for row in rows(found, "log")] == list(range(1, 1001, 50))
    assert values(found, "log", "age_seconds")[:2] == [999.0, 949.0]
    assert readings(found) == {"dmesg": ("kernel", None)} and gaps(found) == []


def test_a_tools_output_of_many_megabytes_is_parsed_in_part_and_that_is_said(monkeypatch):
    monkeypatch.setattr(paste, "SECTION_BYTES", 100)
    found = read("calm\n" * 50 + "tool v1\n" + "value 5\n" * 50)
    assert 8 < len(rows(found, "tool")) < 13 and rows(found, "tool")[0].at == 52
    assert "from line 51 on" in gaps(found)[0].reason


def test_when_time_is_up_the_rest_is_a_gap(monkeypatch):
    monkeypatch.setattr(paste.plain, "PIECE_BYTES", 100)
    monkeypatch.setattr(paste.plain, "FIRST_BYTES", 100)
    found = read(
        "[    1.000000] Linux version 6.1\n" + "[    2.000000] eth0: Link down\n" * 100, deadline=time.monotonic()
    )
    assert [(gap.kind, gap.how) for gap in gaps(found)] == [("truncated", "raise --budget")]
    assert readings(found) == {"dmesg": ("kernel", None)}


def test_what_could_be_read_of_a_damaged_stream_is_read(monkeypatch):
    class Broken(io.BytesIO):
        def read(self, size=-1):
            if self.tell():
                raise OSError(5, "Input/output error")
            return super().read(11)

    monkeypatch.setattr(paste.plain, "PIECE_BYTES", 100)
    monkeypatch.setattr(paste.plain, "FIRST_BYTES", 100)
    found = read(b"", stream=Broken(b"tool v1\nvalue 5\nvalue 6"))
    assert "Input/output error" in gaps(found)[0].reason and found.tools == ["tool"]


def test_the_stream_is_closed_even_when_it_is_no_text():
    stream = io.BytesIO(b"\0\0")
    with pytest.raises(BadFile):
        read(b"", stream=stream)
    assert stream.closed


# --- kernel logs: whole or excerpt ---


@pytest.mark.parametrize(
    "content,complete",
    [
        ("[    0.000000] Linux version 6.1\n[    1.000000] x\n", 1),
        ("[  100.000000] x\n", None),
        ("$ dmesg\n[    0.000000] Linux version 6.1\n", 1),
        ("$ dmesg | tail\n[    0.000000] Linux version 6.1\n", None),
        ("x\n", None),
    ],
)
def test_a_kernel_log_is_whole_from_its_first_line_after_boot(content, complete):
    assert readings(read(content)).get("dmesg", (0, None))[1] == complete


def printed(text, end):
    return paste.read_printed(LIBRARY, Printed("dmesg", text, "dmesg", end), DAY)


@pytest.mark.parametrize(
    "text,complete",
    [
        ("", 1),
        ("[    0.000000] Linux version 6.1", 1),
        ("[  100.000000] x", 1),
        ("[99000.000000] the ring forgot what was before", None),
    ],
)
def test_the_nodes_own_log_is_whole_when_it_goes_back_as_far_as_is_asked(text, complete):
    assert [item.values["complete"] for _, _, item in printed(text, 100_000.0)] == [complete]


def test_ages_in_the_nodes_own_log_count_from_now():
    items = printed("[  100.000000] eth0: Link down", 150.0)
    assert [item.values["age_seconds"] for _, _, item in items if item.table == "log"] == [50.0]

"""What stands before the message of a log line."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.evidence.log_line import (
    Since,
    host_of,
    parse_time,
    prompt_command,
    seconds_between,
    split_prefix,
    strip_prefix,
)

LINES = [
    ("[905244.123409] mlx5_core: x", "905244.123409", "boot", None, None),
    ("[   12.345678][  T123] mlx5_core: x", "12.345678", "boot", None, None),
    ("[   12.345678 <    0.000012>] mlx5_core: x", "12.345678", "boot", None, None),
    ("<4>[   12.345678] mlx5_core: x", "12.345678", "boot", None, None),
    ("kern  :err   : [   12.345678] mlx5_core: x", "12.345678", "boot", None, None),
    ("6,339,5140900,-;mlx5_core: x", "5140900", "boot", None, None),
    ("[Wed Sep  9 11:26:02 2026] mlx5_core: x", "Wed Sep  9 11:26:02 2026", "local", None, None),
    ("[Sep 9 11:26] mlx5_core: x", "Sep 9 11:26", "yearless", None, None),
    ("[Sep09 11:26] mlx5_core: x", "Sep09 11:26", "yearless", None, None),
    ("[   12.345678] node-a kernel: mlx5_core: x", "12.345678", "boot", "node-a", None),
    ("1764483291.123456 node-a kernel: mlx5_core: x", "1764483291.123456", "epoch", "node-a", None),
    ("Mon 2026-02-02 09:56:04 UTC node-a kernel: mlx5_core: x", "Mon 2026-02-02 09:56:04 UTC", "utc", "node-a", None),
    (
        "Mon 2026-02-02 09:56:04.5 CET node-a kernel: mlx5_core: x",
        "Mon 2026-02-02 09:56:04.5 CET",
        "local",
        "node-a",
        None,
    ),
    ("[  +0.000012] mlx5_core: x", None, None, None, None),
    ("2026-02-02T09:56:04,123456+00:00 mlx5_core: x", "2026-02-02T09:56:04,123456+00:00", "utc", None, None),
    ("2026-02-02T09:56:04+0100 node-a kernel: mlx5_core: x", "2026-02-02T09:56:04+0100", "utc", "node-a", None),
    ("Feb 02 09:56:04 node-a kernel: mlx5_core: x", "Feb 02 09:56:04", "yearless", "node-a", None),
    ("Feb  2 09:56:04 node-a kernel: [  9.5] mlx5_core: x", "Feb  2 09:56:04", "yearless", "node-a", None),
    ("mlx5_core: x", None, None, None, None),
]
PROGRAM_LINES = [
    ("node-b:1204:1251 [0] NCCL WARN x", None, None, "node-b", 1204),
    ("[2026-03-13 22:26:02] node-a:31007:31254 [5] NCCL WARN x", "2026-03-13 22:26:02", "local", "node-a", 31007),
    ("[1,0]<stdout>:node-a:1:2 [0] NCCL WARN x", None, None, "node-a", 1),
    ("0: node-a:1:2 [0] NCCL WARN x", None, None, "node-a", 1),
    ("[rank3]: node-a:1:2 [0] NCCL WARN x", None, None, "node-a", 1),
    ("[pod/vllm-0/server] node-a:1:2 [0] NCCL WARN x", None, None, "node-a", 1),
    ("[pod/vllm-0/server] NCCL WARN x", None, None, "vllm-0", None),
    ("(RayWorkerWrapper pid=12, ip=10.20.0.2) NCCL WARN x", None, None, "10.20.0.2", 12),
    ("[1700000001.054681] [node-a:20101:0]        NCCL WARN x", "1700000001.054681", "epoch", "node-a", 20101),
    ("[node-a:20101] NCCL WARN x", None, None, "node-a", 20101),
    ("E0512 03:42:36.255509 20240 file.cpp:198] NCCL WARN x", "0512 03:42:36.255509", "yearless", None, 20240),
    ("vllm-1  | E0512 03:42:36.255509 20240 a.cpp:1] NCCL WARN x", "0512 03:42:36.255509", "yearless", "vllm-1", 20240),
    ("[rank3]:[W512 07:15:07.123456789 socket.cpp:12] NCCL WARN x", "512 07:15:07.123456789", "yearless", None, None),
    ("(EngineCore_DP0 pid=7) INFO 05-12 03:42:36 [core.py:12] NCCL WARN x", "05-12 03:42:36", "yearless", None, 7),
    ("2026-03-13 22:26:02,123 - nixl - ERROR - NCCL WARN x", "2026-03-13 22:26:02,123", "local", None, None),
    ("2026/03/08 17:43:19 NCCL WARN x", "2026/03/08 17:43:19", "local", None, None),
    ("[2025-05-12 03:42:36 TP0] NCCL WARN x", "2025-05-12 03:42:36", "local", None, None),
    ("2026-02-02T09:56:04.487123456Z stderr F NCCL WARN x", "2026-02-02T09:56:04.487123456Z", "utc", None, None),
    ('{"log":"NCCL WARN x\\n","time":"2026-02-02T09:56:04.48Z"}', "2026-02-02T09:56:04.48Z", "utc", None, None),
    ("Feb 02 09:56:04 node-a vllm[77]: NCCL WARN x", "Feb 02 09:56:04", "yearless", "node-a", 77),
]


@pytest.mark.parametrize("line,time,style,host,pid", LINES + PROGRAM_LINES)
def test_time_host_and_process_are_peeled_off(line, time, style, host, pid):
    found = split_prefix(line)
    assert (found.time, found.style, found.host, found.pid) == (time, style, host, pid)
    assert found.rest in ("mlx5_core: x", "NCCL WARN x")


def test_seconds_of_one_style_compare():
    first, _ = parse_time("[Wed Sep  9 11:26:02 2026] x")
    last, _ = parse_time("[Wed Sep  9 11:27:03 2026] x")
    assert last - first == 61
    assert parse_time("2026-02-02T09:56:04+0100 x")[0] == parse_time("2026-02-02T08:56:04Z x")[0]


def test_stamps_without_year_may_pass_the_new_year():
    before, after = split_prefix("Dec 31 23:59:59 node-a kernel: x"), split_prefix("Jan  1 00:00:01 node-a kernel: x")
    assert seconds_between(before.seconds, after.seconds, after.style) == 2
    assert seconds_between(10.0, 12.5, "boot") == 2.5


def test_a_line_of_libmlx5_names_its_host_and_keeps_its_message():
    line = "mlx5: node-a: got completion with error:"
    assert (host_of(line), strip_prefix(line)) == ("node-a", line)


@pytest.mark.parametrize("line", ["Error transport retry counter exceeded", "link mlx5_0/1 state UP", "4: ACTIVE", ""])
def test_other_text_is_left_as_it_is(line):
    assert split_prefix(line)[:4] == (line, None, None, None)


def test_a_day_that_does_not_exist_has_no_time():
    assert split_prefix("[2026-13-45 22:26:02] x").seconds is None


@pytest.mark.parametrize(
    "line,command",
    [
        ("$ ibstat", "ibstat"),
        ("# ./ib_write_bw -R -n10", "./ib_write_bw -R -n10"),
        ("root@node-a:~# ibv_devinfo -v", "ibv_devinfo -v"),
        ("[root@node-a ~]# ibstatus", "ibstatus"),
        ("(venv) user@node-a:~/x$ ulimit -l", "ulimit -l"),
        ("+ ibstat -l", "ibstat -l"),
        ("bash-4.4# env", "env"),
        ("node-a:~ # lspci -vvv", "lspci -vvv"),
        ("# Size       Avg Latency(us)", None),
        ("#   < failed to open interface >", None),
        ("node-a:1:2 [0] NCCL WARN x", None),
        ("12: mlx5", None),
    ],
)
def test_prompt_lines_give_their_command(line, command):
    assert prompt_command(line) == command


@given(
    st.one_of(
        st.text(),
        st.sampled_from([line[0] for line in LINES + PROGRAM_LINES]).flatmap(
            lambda line: st.integers(0, len(line)).map(lambda cut: line[:cut] + line[cut + 1 :])
        ),
    )
)
def test_no_text_raises(text):
    split_prefix(text)
    host_of(text)
    prompt_command(text)


def moment(text):
    return Since.at(datetime.datetime.fromisoformat(text).timestamp(), 2e9)


@pytest.mark.parametrize(
    "line,holds",
    [
        ("[2026-03-05 10:00:01] x", True),
        ("[2026-03-05 09:59:59] x", False),
        ("[Thu Mar  5 10:00:01 2026] x", True),
        ("Mar  5 10:00:01 node-a kernel: x", True),
        ("Mar  5 09:59:59 node-a kernel: x", False),
        ("Dec 30 10:00:01 node-a kernel: x", False),  # of the year before, not in ten months
        ("no time", None),
        ("[   12.345678] x", None),
    ],
)
def test_with_a_time_lines_are_recent_from_then_on_whatever_follows_them(line, holds):
    assert moment("2026-03-05T10:00:00").holds(split_prefix(line), 0.0, None) is holds


def test_a_time_in_winter_takes_in_stamps_of_the_next_january():
    since = moment("2025-12-30T10:00:00")
    assert since.holds(split_prefix("Jan  2 08:00:00 node-a kernel: x"), None, None)
    assert not since.holds(split_prefix("Dec 29 08:00:00 node-a kernel: x"), None, None)


def test_stamps_with_a_zone_and_since_boot_are_compared_in_seconds_since_1970():
    since = moment("2026-03-05T10:00:00+01:00")
    assert since.holds(split_prefix("2026-03-05T09:00:01Z x"), None, None)
    assert not since.holds(split_prefix("2026-03-05T08:59:59+00:00 x"), None, None)
    boot = since.moment - 100.0
    assert since.holds(split_prefix("[  100.500000] x"), None, boot)
    assert not since.holds(split_prefix("[   99.500000] x"), None, boot)


def test_without_a_time_lines_are_as_old_as_they_are_before_the_end_of_their_log():
    assert Since(60.0).holds(split_prefix("[ 1.000000] x"), 59.0, None)
    assert not Since(60.0).holds(split_prefix("[ 1.000000] x"), 61.0, None)
    assert Since(60.0).holds(split_prefix("x"), None, None) is None

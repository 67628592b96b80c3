"""What `rdmadiag lab` promises, sentence by sentence, on a real guest."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from rdmadiag.lab import Lab, LabError, boot, client, find, kernels, look, places
from tests.softroce.conftest import ROOT, Cli, command, environment, processes_of, wait_until


def start(*args: str, **options: object) -> subprocess.Popen[bytes]:
    """Start our command line without waiting for it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        command(*args), env=environment(), cwd=ROOT, **{**pipes, **options}
    )


# --- up, status, list ---


def test_status_names_devices_addresses_gid_indices_and_mtus(cli: Cli, lab: Lab) -> None:
    shown = json.loads(cli("status", lab.name, "--format", "json").stdout)
    assert shown["schema"] == "rdmadiag.lab/1"
    named = [(x["host"], x["device"], x["state"], x["netdev"], x["address"]) for x in shown["links"]]
    assert named == [
        ("h1", "rxe1", "ACTIVE", "v1", "10.0.0.1"),
        ("h2", "rxe2", "ACTIVE", "v2", "10.0.0.2"),
        ("h1", None, None, "e1", "10.0.100.1"),
        ("h2", None, None, "e2", "10.0.100.2"),
    ]
    assert [(x["gid_index"], x["mtu"], x["active_mtu"]) for x in shown["links"]][:2] == [(1, 4200, 4096)] * 2
    gid = next(gid for gid in shown["links"][0]["gids"] if gid["index"] == 1)
    assert gid == {"index": 1, "gid": "0000:0000:0000:0000:0000:ffff:0a00:0001", "type": "RoCE v2"}
    assert "rxe2    ACTIVE  v2      10.0.0.2" in cli("status", lab.name).stdout


def test_up_of_a_running_lab_with_the_same_options_is_not_an_error(cli: Cli, lab: Lab) -> None:
    again = cli("up", lab.name)
    assert again.returncode == 0
    assert find(lab.name).record["pid"] == lab.record["pid"]


def test_up_of_a_running_lab_with_other_options_says_which_differ(cli: Cli, lab: Lab) -> None:
    refused = cli("up", lab.name, "--rate", "1gbit", "--ecn")
    assert refused.returncode == 2
    assert "--rate is 200mbit, wanted 1gbit" in refused.stderr
    assert "--ecn is False, wanted True" in refused.stderr
    assert "--hosts" not in refused.stderr


def test_list_finds_a_lab_whose_maker_is_gone(cli: Cli, lab: Lab) -> None:
    shown = json.loads(cli("list", "--format", "json").stdout)
    assert shown["schema"] == "rdmadiag.labs/1"
    assert [one["state"] for one in shown["labs"] if one["name"] == lab.name] == ["up"]


def test_two_labs_live_side_by_side_and_the_second_starts_from_the_saved_state(cli: Cli, lab: Lab, name: str) -> None:
    assert cli("up", name).returncode == 0
    assert find(name).record["how"] == "restored"
    assert [find(which).run(["hostname"]).text.strip() for which in (lab.name, name)] == [lab.name, name]
    random = [find(which).run(["head", "-c16", "/dev/urandom"]).out for which in (lab.name, name)]
    assert random[0] != random[1]


def test_a_saved_state_that_is_broken_is_made_anew(cli: Cli, lab: Lab, name: str, real_cache: None) -> None:
    kernel = kernels.find()
    (plan,) = boot.plans(lab.options, name, kernel, lab.record["accelerator"], Path("/"))
    state = boot.state_file(plan, kernel.own_modules)
    state.write_bytes(b"not a state" + state.read_bytes()[11:])
    made = cli("up", name)
    assert made.returncode == 0, made.stderr
    assert "the saved state was of no use" in made.stderr
    assert find(name).record["how"] == "booted"


def test_doctor_says_that_a_lab_can_come_up_here(cli: Cli) -> None:
    said = cli("doctor")
    assert said.returncode == 0
    assert said.stdout.endswith("a lab can come up here\n")


def test_doctor_says_what_is_missing_and_what_installs_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    said = cli("doctor")
    assert said.returncode == 1
    assert "MISSING   qemu-system-x86_64" in said.stdout
    assert re.search(r"^install: .*apt-get install -y qemu-system-x86 ", said.stdout, re.M)
    assert said.stdout.endswith("a lab cannot come up here\n")


# --- exec ---


def test_exec_keeps_the_two_outputs_apart_and_passes_input_and_exit_code(cli: Cli, lab: Lab) -> None:
    ran = cli("exec", lab.name, "--", "sh", "-c", "cat; echo complaint >&2; exit 7", input="given\n")
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, "given\n", "complaint\n")


def test_exec_streams_output_before_the_command_ends(lab: Lab) -> None:
    with start("exec", lab.name, "--", "sh", "-c", "echo first; read line; echo got $line") as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == b"first\n"  # it cannot have ended: it waits for us
        process.stdin.write(b"second\n")
        process.stdin.close()
        assert process.stdout.read() == b"got second\n"
    assert process.returncode == 0


def test_much_input_and_output_arrive_whole(lab: Lab) -> None:
    data = os.urandom(3 << 20)
    ran = lab.run(["cat"], stdin=data, timeout_seconds=120)
    assert hashlib.sha256(ran.out).digest() == hashlib.sha256(data).digest()


def test_a_client_that_reads_nothing_does_not_hold_up_another(lab: Lab) -> None:
    with start("exec", lab.name, "--", "sh", "-c", "echo $$; exec head -c 20000000 /dev/zero") as stuck:
        assert stuck.stdout
        stuck.stdout.readline()
        assert lab.run(["echo", "here"], timeout_seconds=60).text == "here\n"
        stuck.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_command(lab: Lab, number: signal.Signals) -> None:
    script = f"trap 'echo caught; exit 9' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    with start("exec", lab.name, "--", "sh", "-c", script) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.read() == b"caught\n"
    assert process.returncode == 9


def test_a_command_killed_by_a_signal_ends_with_128_and_its_number(cli: Cli, lab: Lab) -> None:
    assert cli("exec", lab.name, "--", "sh", "-c", "kill -9 $$").returncode == 137


def test_our_own_failures_are_125_to_127(cli: Cli, lab: Lab) -> None:
    codes = [cli("exec", lab.name, "--", word).returncode for word in ("no-such-command", "/etc/passwd")]
    assert codes == [127, 126]
    missing = cli("exec", "no-such-lab", "--", "true")
    assert missing.returncode == 125
    assert "rdmadiag lab up no-such-lab" in missing.stderr
    assert cli("exec", lab.name, "--host", "h9", "--", "true").returncode == 125


def test_the_command_of_a_client_that_was_killed_ends(lab: Lab) -> None:
    with start("exec", lab.name, "--", "sh", "-c", "echo $$; exec sleep 1000") as process:
        assert process.stdout
        number = process.stdout.readline().decode().strip()
        process.kill()
    wait_until(lambda: lab.run(["test", "-d", f"/proc/{number}"]).code == 1)


def test_a_terminal_has_our_size_and_follows_it(lab: Lab) -> None:
    ours, theirs = pty.openpty()

    def resize(rows: int, columns: int) -> None:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    resize(33, 101)
    script = "stty size; trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done"
    process = start("exec", lab.name, "--", "sh", "-c", script, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(ours, 1000)
    assert shown.splitlines()[0] == b"33 101"
    resize(40, 80)
    process.send_signal(signal.SIGWINCH)
    assert process.wait(60) == 3
    assert b"40 80" in os.read(ours, 1000)
    os.close(ours)


def test_the_working_folder_is_writable_at_the_same_path_and_nothing_else_reaches_this_machine(
    cli: Cli, lab: Lab
) -> None:
    place = ROOT / f".lab-test-{os.getpid()}"
    try:
        assert cli("exec", lab.name, "--", "sh", "-c", f"pwd; echo there > {place}").stdout == f"{ROOT}\n"
        assert place.read_text() == "there\n"
        place.write_text("back\n")
        assert lab.run(["cat", str(place)]).text == "back\n"
    finally:
        place.unlink(missing_ok=True)
    assert lab.run(["sh", "-c", "echo x > /etc/rdmadiag-lab-test && cat /etc/rdmadiag-lab-test"]).text == "x\n"
    assert not os.path.exists("/etc/rdmadiag-lab-test")


def test_a_command_that_does_not_end_is_killed_at_its_deadline(lab: Lab) -> None:
    with pytest.raises(LabError, match="did not end within 1 s and was killed"):
        lab.run(["sleep", "1000"], timeout_seconds=1)


# --- deaths ---


def nothing_is_left(name: str) -> bool:
    """Tell whether a lab has neither processes nor files."""
    return not processes_of(name) and not (places.labs_folder() / name).exists()


def coming_up(name: str) -> subprocess.Popen[bytes]:
    """Start to make a lab and return while its guest boots."""
    process = start("up", name, "--mtu", "1500", "--rate", f"{os.getpid() % 900 + 10}mbit")  # no saved state has these
    assert process.stderr
    while b"booting" not in (line := process.stderr.readline()):
        assert line
    return process


def test_a_lab_whose_maker_is_killed_while_it_comes_up_leaves_nothing(name: str) -> None:
    with coming_up(name) as process:
        process.kill()
    wait_until(lambda: nothing_is_left(name))


def test_a_lab_whose_keeper_is_killed_while_it_comes_up_leaves_nothing(name: str) -> None:
    with coming_up(name) as process:
        keeper = min(processes_of(name), key=lambda pid: "qemu" in Path(f"/proc/{pid}/comm").read_text())
        os.kill(keeper, signal.SIGKILL)
        assert process.wait(60) == 2
        assert process.stderr and b"while it came up" in process.stderr.read()
    wait_until(lambda: nothing_is_left(name))


def test_a_lab_whose_guest_is_killed_while_it_comes_up_says_so_and_leaves_nothing(name: str) -> None:
    with coming_up(name) as process:
        wait_until(lambda: len(processes_of(name)) == 2)
        guest = max(processes_of(name), key=lambda pid: "qemu" in Path(f"/proc/{pid}/comm").read_text())
        os.kill(guest, signal.SIGKILL)
        assert process.wait(120) == 2
        assert process.stderr and b"QEMU was killed by signal 9" in process.stderr.read()
    wait_until(lambda: nothing_is_left(name))


def test_a_lab_that_is_coming_up_can_be_taken_down(cli: Cli, name: str) -> None:
    with coming_up(name) as process:
        assert cli("down", name).returncode == 0
        assert process.wait(60) == 2
        assert process.stderr and b"it was told to stop while it came up" in process.stderr.read()
    wait_until(lambda: nothing_is_left(name))


def test_both_killed_while_it_comes_up_leave_nothing(cli: Cli, name: str) -> None:
    with coming_up(name) as process:
        keeper = min(processes_of(name), key=lambda pid: "qemu" in Path(f"/proc/{pid}/comm").read_text())
        process.kill()
        os.kill(keeper, signal.SIGKILL)
    assert name not in cli("list").stdout
    wait_until(lambda: nothing_is_left(name))


def test_a_killed_keeper_takes_its_guest_along_and_is_reported(cli: Cli, name: str) -> None:
    assert cli("up", name).returncode == 0
    os.kill(find(name).record["pid"], signal.SIGKILL)
    wait_until(lambda: not processes_of(name))
    shown = cli("status", name)
    assert shown.returncode == 1 and "its keeper process was killed" in shown.stdout
    assert cli("exec", name, "--", "true").returncode == 125
    assert cli("up", name).returncode == 0, "a dead lab is made anew"
    assert cli("down", name).returncode == 0
    assert nothing_is_left(name)


def test_a_killed_guest_is_reported_with_its_signal(cli: Cli, name: str) -> None:
    assert cli("up", name).returncode == 0
    os.kill(find(name).record["guests"]["vm"], signal.SIGKILL)
    wait_until(lambda: not processes_of(name))
    assert "QEMU was killed by signal 9" in cli("status", name).stdout
    assert "dead" in cli("list").stdout


def test_a_guest_panic_is_reported_with_its_console(cli: Cli, name: str) -> None:
    assert cli("up", name).returncode == 0
    ran = cli("exec", name, "--", "sh", "-c", "echo c > /proc/sysrq-trigger")
    assert ran.returncode == 125
    assert "the guest panicked: Kernel panic - not syncing: sysrq triggered crash" in ran.stderr
    wait_until(lambda: (state := look(name)) is not None and state.state == "dead")
    shown = json.loads(cli("status", name, "--format", "json").stdout)
    assert "Kernel panic - not syncing: sysrq triggered crash" in shown["reason"]
    assert any("sysrq_handle_crash" in line for line in shown["console"])


def test_a_lab_that_nobody_uses_ends_at_its_idle_limit(cli: Cli, name: str) -> None:
    assert cli("up", name, "--idle", "3s").returncode == 0
    with start("exec", name, "--", "sh", "-c", "sleep 5; echo still") as process:
        assert process.stdout and process.stdout.read() == b"still\n"  # in use for longer than the limit
    wait_until(lambda: nothing_is_left(name))


def test_a_guest_that_stands_still_is_reported_and_not_waited_for(
    cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("up", name).returncode == 0
    os.kill(find(name).record["guests"]["vm"], signal.SIGSTOP)
    monkeypatch.setattr(client, "ANSWER_SECONDS", 1.0)
    with pytest.raises(LabError, match="the guest gave no answer within 1 s"):
        find(name).run(["true"])
    shown = json.loads(cli("status", name, "--format", "json").stdout)
    assert shown["guests"] == {"vm": "guest vm: no answer within 2 s"}
    assert [link["state"] for link in shown["links"]] == ["unknown", "unknown", None, None]
    assert cli("down", name).returncode == 0
    assert nothing_is_left(name)


def test_a_shell_is_a_shell(lab: Lab) -> None:
    ours, theirs = pty.openpty()
    process = start("shell", lab.name, "--host", "switch", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, b"ls /sys/class/net | tr '\\n' ,; exit 5\n")
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while data := os.read(ours, 1000):
            shown += data
    assert process.wait(60) == 5
    assert b"p1,p2,q1,q2" in shown
    os.close(ours)


def test_down_of_no_lab_says_so(cli: Cli) -> None:
    gone = cli("down", "no-such-lab")
    assert gone.returncode == 2 and "no lab 'no-such-lab'" in gone.stderr

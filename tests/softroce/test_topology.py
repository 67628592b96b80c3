"""The hosts and the switch of a lab: what crosses which port, how ports are shaped, what fails apart."""

from __future__ import annotations

import json

from rdmadiag.lab import Lab, Options, find, topology
from tests.softroce.conftest import Cli, pingpong

TCP = """
import socket, threading
def end(netdev):
    s = socket.socket(); s.settimeout(20)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, netdev.encode() + b"\\0"); return s
server = end("e2"); server.bind(("10.0.100.2", 0)); server.listen(1)
def answer():
    got, size = server.accept()[0], 0
    while data := got.recv(65536): size += len(data)
    print(size)
thread = threading.Thread(target=answer); thread.start()
client = end("e1"); client.connect(server.getsockname()); client.sendall(bytes(1 << 20)); client.close(); thread.join()
"""


MOVED_ABOUT = """
import os, subprocess, time
def gaps():
    return int(open("/sys/class/infiniband/rxe2/ports/1/hw_counters/out_of_seq_request").read())
before = gaps()
words = ["timeout", "90", "ib_write_bw", "-x", "1", "-F", "-s", "65536", "-n", "200", "-t", "4", "-u", "18", "-d"]
for _ in range(20):
    server = subprocess.Popen([*words, "rxe2"], stdout=subprocess.DEVNULL)
    time.sleep(1)
    client = subprocess.Popen([*words[2:], "rxe1", "10.0.0.2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    moves = 0
    while client.poll() is None:
        os.sched_setaffinity(client.pid, {moves % 2})
        moves += 1
        time.sleep(0.002)
    if client.returncode == 0:
        break
    server.kill()
    server.wait()
print(client.returncode, server.wait(), moves > 50, gaps() - before)
"""


def sent(lab: Lab, port: str) -> int:
    """Return the packets that a switch port has sent."""
    shown = lab.run(["ip", "-j", "-s", "link", "show", port], host="switch")
    return int(json.loads(shown.out)[0]["stats64"]["tx"]["packets"])


def qdiscs(lab: Lab, port: str) -> dict[str, dict[str, object]]:
    """Return a switch port's qdiscs by kind."""
    shown = lab.run(["tc", "-j", "-s", "qdisc", "show", "dev", port], host="switch")
    return {entry["kind"]: entry for entry in json.loads(shown.out)}


def test_rc_messages_cross_the_switch_and_are_counted_on_both_ports(lab: Lab) -> None:
    before = {port: sent(lab, port) for port in ("p1", "p2", "q1", "q2")}
    ran = lab.run(pingpong("rxe1", "rxe2", "10.0.0.1", count=200), timeout_seconds=90)
    assert ran.code == 0, ran
    moved = {port: sent(lab, port) - before[port] for port in before}
    assert moved["p1"] >= 200 and moved["p2"] >= 200  # at least one packet a message and direction
    assert moved["q1"] < 50 and moved["q2"] < 50


def test_rping_connects_by_rdma_cm_over_the_switch(lab: Lab) -> None:
    script = """
    timeout 60 rping -s -a 10.0.0.1 -C 5 > /dev/null 2>&1 & server=$!; tries=0
    until timeout 30 rping -c -a 10.0.0.1 -I 10.0.0.2 -C 5 -v 2>/dev/null; do
      tries=$((tries+1)); [ $tries -lt 20 ] || exit 1; sleep 0.5
    done; wait $server; true
    """
    before = sent(lab, "p1")
    ran = lab.run(["sh", "-c", script], timeout_seconds=90)
    assert ran.code == 0, ran
    assert ran.text.count("rdma-ping-") == 5
    assert sent(lab, "p1") - before >= 20


def test_the_port_is_the_bottleneck_not_the_emulated_processor(lab: Lab) -> None:
    before = qdiscs(lab, "p2")["tbf"]["overlimits"]
    script = """
    timeout 90 ib_write_bw -d rxe2 -x 1 -s 65536 -n 300 -F > /dev/null 2>&1 & server=$!; tries=0
    until timeout 60 ib_write_bw -d rxe1 -x 1 -s 65536 -n 300 -F 10.0.0.2 > /tmp/bw.txt 2>&1; do
      tries=$((tries+1)); [ $tries -lt 20 ] || { cat /tmp/bw.txt; exit 1; }; sleep 0.5
    done; wait $server; cat /tmp/bw.txt
    """
    ran = lab.run(["sh", "-c", script], timeout_seconds=120)
    assert ran.code == 0, ran
    assert qdiscs(lab, "p2")["tbf"]["overlimits"] > before  # type: ignore[operator]


def test_no_packet_overtakes_another_though_its_sender_goes_from_processor_to_processor(lab: Lab) -> None:
    assert lab.run(["/usr/bin/python3", "-c", MOVED_ABOUT], timeout_seconds=120).text == "0 0 True 0\n"


def test_the_plain_network_works_while_the_rdma_network_is_cut(lab: Lab) -> None:
    cut = ["ip", "link", "set", "br1", "down"]
    assert lab.run(cut, host="switch").code == 0
    try:
        before = sent(lab, "q2")
        ran = lab.run(["/usr/bin/python3", "-c", TCP], timeout_seconds=60)
        assert ran.text.strip() == str(1 << 20), ran
        assert sent(lab, "q2") - before >= 10
        rdma = lab.run(["sh", "-c", "timeout 3 rping -c -a 10.0.0.1 -I 10.0.0.2 -C 1"], timeout_seconds=60)
        assert rdma.code != 0
    finally:
        assert lab.run([*cut[:-1], "up"], host="switch").code == 0


def test_a_lab_with_three_hosts_two_rails_and_ecn_has_all_of_it(cli: Cli, name: str) -> None:
    made = cli(
        "up", name, "--hosts", "3", "--rails", "2", "--rate", "60mbit", "--ecn", "--mtu", "2200", "--format", "json"
    )
    assert made.returncode == 0, made.stderr
    shown = json.loads(made.stdout)
    devices = [link for link in shown["links"] if link["device"]]
    assert [link["device"] for link in devices] == ["rxe1", "rxe2", "rxe3", "rxe1b", "rxe2b", "rxe3b"]
    assert {(link["state"], link["mtu"], link["active_mtu"], link["gid_index"]) for link in devices} == {
        ("ACTIVE", 2200, 2048, 1)
    }
    lab = find(name)
    rail_1, rail_2 = sent(lab, "p3"), sent(lab, "p3b")
    assert lab.run(pingpong("rxe1b", "rxe3b", "10.0.1.1"), timeout_seconds=90).code == 0
    assert sent(lab, "p3b") - rail_2 >= 200
    assert sent(lab, "p3") - rail_1 < 50
    script = """
    timeout 90 ib_write_bw -d rxe2 -x 1 -s 65536 -n 100 -F --tclass=2 > /dev/null 2>&1 & server=$!; tries=0
    until timeout 60 ib_write_bw -d rxe1 -x 1 -s 65536 -n 100 -F --tclass=2 10.0.0.2 > /tmp/bw.txt 2>&1; do
      tries=$((tries+1)); [ $tries -lt 20 ] || { cat /tmp/bw.txt; exit 1; }; sleep 0.5
    done; wait $server
    """
    assert lab.run(["sh", "-c", script], timeout_seconds=120).code == 0
    assert qdiscs(lab, "p2")["red"]["marked"] > 0  # type: ignore[operator]


def test_the_active_mtu_is_what_verbs_say(lab: Lab) -> None:
    said = lab.run(["ibv_devinfo", "-d", "rxe1"], timeout_seconds=60).text
    assert f"active_mtu:\t\t{topology.active_mtu(Options().mtu)} (" in said


def test_modules_that_faults_need_load_when_they_are_used(lab: Lab) -> None:
    netem = ["tc", "qdisc", "add", "dev", "q1", "root", "netem", "delay", "1ms"]
    assert lab.run(netem, host="switch") == (0, b"", b"")
    assert lab.run(["tc", "qdisc", "del", "dev", "q1", "root"], host="switch").code == 0

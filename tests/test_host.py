"""The door to a node: live, captured and recording doors give the same answers; nothing outside of a captured tree is opened."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag import sources
from rdmadiag.errors import HostRefused, NotGiven, NotPresent
from rdmadiag.evidence import collect
from rdmadiag.host.captured import CapturedHost
from rdmadiag.host.live import LiveHost
from rdmadiag.host.recording import RecordingHost
from rdmadiag.host.tree import FolderTree, Tree, parse_tree

TEXT = """# seconds 12.5
# absent: /dev/infiniband
/proc/sys/kernel/hostname:node-a
/sys/class/infiniband/mlx5_0 -> ../../devices/pci0000:00/0000:00:01.0/0000:18:00.0/infiniband/mlx5_0
/sys/devices/pci0000:00/0000:00:01.0/0000:18:00.0/vendor:0x15b3
/sys/class/infiniband/mlx5_0/fw_ver:28.39.1002
/sys/class/infiniband/mlx5_0/ports/1/gids/0:fe80:0000:0000:0000:a288:c2ff:fe00:0001
/sys/class/infiniband/mlx5_0/node_desc:first
/sys/class/infiniband/mlx5_0/node_desc:second: line
/sys/class/infiniband/mlx5_0/empty:
/sys/class/infiniband/mlx5_0/folder/
a line that is nothing
"""


@pytest.fixture(params=["text", "folder"])
def captured(request, tmp_path):
    tree, seconds = parse_tree(TEXT)
    if request.param == "text":
        return CapturedHost(tree, "node-a", seconds)
    for path, entry in tree.entries.items():
        place = tmp_path / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(entry, str):
            place.symlink_to(entry)
        elif entry is None:
            place.mkdir(exist_ok=True)
        else:
            place.write_bytes(entry)
    return CapturedHost(FolderTree(str(tmp_path)), "node-a", seconds)


BDF = "/sys/devices/pci0000:00/0000:00:01.0/0000:18:00.0"


def test_a_captured_tree_answers_like_a_node(captured):
    assert captured.read("/sys/class/infiniband/mlx5_0/fw_ver") == "28.39.1002"
    assert captured.read(f"{BDF}/infiniband/mlx5_0/fw_ver") == "28.39.1002"
    assert captured.read(f"{BDF}/vendor") == "0x15b3"
    assert captured.read("/sys/class/infiniband/mlx5_0/ports/1/gids/0") == "fe80:0000:0000:0000:a288:c2ff:fe00:0001"
    assert captured.read("/sys/class/infiniband/mlx5_0/node_desc") == "first\nsecond: line"
    assert captured.read("/sys/class/infiniband/mlx5_0/empty") == ""
    assert captured.ls("/sys/class/infiniband") == ["mlx5_0"]
    assert captured.ls("/sys/class/infiniband/mlx5_0") == ["empty", "folder", "fw_ver", "node_desc", "ports"]
    assert captured.ls("/sys/class/infiniband/mlx5_0/folder") == []
    assert captured.link("/sys/class/infiniband/mlx5_0") == f"{BDF}/infiniband/mlx5_0"
    assert captured.exists("/sys/class/infiniband/mlx5_0/../mlx5_0/./fw_ver")
    assert not captured.exists("/sys/class/infiniband/mlx5_1")
    assert (captured.clock(), captured.usable("/x"), captured.live, captured.root) == (12.5, None, False, None)


def test_a_part_that_was_not_captured_is_not_given_and_one_missing_in_a_captured_part_is_not_there(captured):
    for path in ("/sys/class/infiniband/mlx5_1/fw_ver", "/sys/class/infiniband/mlx5_0/nosuch"):
        with pytest.raises(NotPresent):
            captured.read(path)
    for path in ("/proc/modules", "/sys/class/net", "/sys/bus/pci/devices/x", "/proc/self/limits"):
        with pytest.raises(NotGiven):
            captured.ls(path)
    for call in (captured.run, captured.objects):
        with pytest.raises(NotGiven):
            call("rdma res show qp")


def test_what_the_capture_found_absent_is_not_there():
    host = CapturedHost(parse_tree(TEXT)[0])
    with pytest.raises(NotPresent):
        host.ls("/dev/infiniband")
    with pytest.raises(NotGiven):
        host.ls("/dev/other")


def test_a_file_is_no_folder_and_a_folder_no_file(captured):
    with pytest.raises(HostRefused, match="not a folder"):
        captured.ls(f"{BDF}/vendor")
    with pytest.raises(HostRefused, match="not a file"):
        captured.read("/sys/class/infiniband")


def test_a_link_to_a_part_that_was_not_captured_gives_its_target():
    host = CapturedHost(parse_tree("/sys/class/net/eth0/device -> ../../../0000:18:00.0\n")[0])
    assert host.link("/sys/class/net/eth0/device") == "/sys/0000:18:00.0"


def test_links_in_a_circle_end():
    host = CapturedHost(parse_tree("/sys/a -> b\n/sys/b -> a\n/sys/c -> c/c\n/sys/c/x:1\n")[0])
    for path in ("/sys/a", "/sys/c", "/sys/a/x"):
        with pytest.raises((HostRefused, NotPresent)):
            host.read(path)


def test_links_out_of_a_folder_stay_inside(tmp_path):
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "root"
    (root / "sys").mkdir(parents=True)
    for name, target in (("abs", str(tmp_path / "secret")), ("up", "../../../../../secret"), ("dir", "..")):
        (root / "sys" / name).symlink_to(target)
    (root / "secret").write_text("ours")
    host = CapturedHost(FolderTree(str(root)))
    with pytest.raises((NotPresent, NotGiven)):
        host.read("/sys/abs")
    assert host.read("/sys/up") == host.read("/sys/dir/secret") == "ours"


def test_pipes_in_a_captured_folder_are_not_opened(tmp_path):
    (tmp_path / "sys").mkdir()
    os.mkfifo(tmp_path / "sys/pipe")
    with pytest.raises((NotPresent, NotGiven)):
        CapturedHost(FolderTree(str(tmp_path))).read("/sys/pipe")


def test_comments_of_a_tree_may_be_wrong():
    tree, seconds = parse_tree("# seconds nan\n# seconds x\n# absent:\n#\n# seconds 3\n# seconds inf\n")
    assert seconds == 3 and tree.entries == {}


def test_a_capture_with_windows_line_ends_is_read():
    assert parse_tree("/sys/x:1\r\n/sys/l -> x\r\n")[0].entries == {"/sys/l": "x", "/sys/x": b"1"}


def test_a_tree_too_deep_is_not_listed():
    tree = Tree({"/sys/" + "a/" * 5000 + "x": b"1", "/sys/x": b"2"})
    assert tree.names("/sys") == ["x"]


@given(st.lists(st.text("/ab.:-> 0#\n", max_size=25), max_size=12))
def test_any_text_is_a_tree(lines):
    tree, _ = parse_tree("\n".join(lines))
    host = CapturedHost(tree)
    for path in (*tree.entries, "/a", "/a/b"):
        for call in (host.read, host.ls, host.link, host.exists):
            try:
                call(path)
            except (NotPresent, HostRefused):
                pass


# --- the live node ---


def test_the_live_node_reads_lists_and_follows(tmp_path):
    host = LiveHost()
    (tmp_path / "x").write_text("hello \n")
    (tmp_path / "l").symlink_to("x")
    assert host.read(str(tmp_path / "x")) == "hello"
    assert host.ls(str(tmp_path)) == ["l", "x"]
    assert host.link(str(tmp_path / "l")) == str(tmp_path / "x")
    assert host.exists(str(tmp_path / "x")) and not host.exists(str(tmp_path / "y"))
    assert host.usable(str(tmp_path / "x"))
    assert host.run("uname -m") == os.uname().machine
    assert abs(int(host.run("date +%s")) - time.time()) < 60
    assert host.name == os.uname().nodename and host.clock() > 0


def test_the_live_node_says_what_is_not_there_and_what_it_refuses(tmp_path):
    host = LiveHost()
    for call in (host.read, host.ls, host.link):
        with pytest.raises(NotPresent):
            call("/nosuch/x")
    with pytest.raises(HostRefused, match="EISDIR"):
        host.read(str(tmp_path))
    with pytest.raises(NotPresent):
        host.run("rm -rf /")


def test_the_live_node_never_waits_on_a_pipe_and_never_reads_without_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert LiveHost().read_bytes(str(tmp_path / "pipe")) == b""
    assert len(LiveHost().read_bytes("/dev/zero")) == 4 << 20


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_without_permission_the_door_says_that_root_may(tmp_path):
    (tmp_path / "x").write_text("x")
    tmp_path.chmod(0)
    os.seteuid(65534)
    try:
        with pytest.raises(HostRefused) as refused:
            LiveHost().read(str(tmp_path / "x"))
    finally:
        os.seteuid(0)
    assert refused.value.how == "run as root"


# --- recording ---

NODES = sorted((Path(__file__).parent / "data/nodes").glob("*/tree.txt"))


@pytest.mark.parametrize("path", NODES[::6], ids=lambda path: path.parent.name)
def test_what_is_recorded_reads_back_the_same(path):
    tree, seconds = parse_tree(path.read_text())
    modules = {name: module for name, module in sources.load().items() if hasattr(module, "read")}

    def look(host):
        return {
            name: [item for item in collect.run_source(name, module, host) if type(item).__name__ == "Row"]
            for name, module in modules.items()
        }

    recording = RecordingHost(CapturedHost(tree, "n", seconds))
    wanted = look(recording)
    again, again_seconds = parse_tree(recording.tree_text())
    assert again_seconds == seconds
    assert look(CapturedHost(again, "n", seconds)) == wanted


def test_a_program_of_the_door_runs_bounded_and_a_refusal_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr("rdmadiag.host.live.PROGRAMS", {"true", "sleep 30", "ls /nosuch", "nosuch-tool -x"})
    monkeypatch.setattr("rdmadiag.host.live.PROGRAM_SECONDS", 0.2)
    host = LiveHost()
    assert host.run("true") == ""
    with pytest.raises(HostRefused, match="did not end"):
        host.run("sleep 30")
    with pytest.raises(HostRefused, match="nosuch"):
        host.run("ls /nosuch")
    with pytest.raises(NotPresent, match="not installed"):
        host.run("nosuch-tool -x")
    with pytest.raises(NotPresent):
        host.run("rm -rf /nosuch")

"""What --from names: files, folders, archives and pipes; nothing outside of what was given is ever opened."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import threading
import time
import zipfile

import pytest

from rdmadiag.errors import BadFile
from rdmadiag.evidence import archive, given
from rdmadiag.evidence.given import GivenText, GivenTree, Refused, TreeText, expand
from rdmadiag.host.captured import CapturedHost


def parts(spec, **options):
    return [part.parsed() if isinstance(part, TreeText) else part for part in expand(str(spec), **options)]


def text_of(part):
    assert isinstance(part, GivenText), part
    with_stream = part.stream.read(1 << 20)
    part.stream.close()
    return with_stream


def make_tar(path, members, mode="w"):
    with tarfile.open(path, mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content
                tar.addfile(info)
    return path


def test_a_file_is_a_text_in_its_folder(tmp_path):
    (tmp_path / "x.log").write_text("hello")
    (part,) = parts(tmp_path / "x.log")
    assert (part.node, part.path, part.group) == (None, str(tmp_path / "x.log"), str(tmp_path))
    assert text_of(part) == b"hello"


def test_a_name_before_the_path_names_the_node(tmp_path):
    (tmp_path / "x.log").write_text("hello")
    (part,) = parts(f"prefill={tmp_path}/x.log")
    assert part.node == "prefill"
    part.stream.close()


def test_a_file_with_an_equals_sign_in_its_name_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").write_text("hello")
    (part,) = parts("a=b")
    assert part.node is None and text_of(part) == b"hello"


@pytest.mark.parametrize("name", ["x.gz", "x.bz2", "x.xz"])
def test_compressed_text_is_known_by_content(tmp_path, name):
    pack = {"x.gz": gzip.compress, "x.bz2": bz2.compress, "x.xz": lzma.compress}[name]
    content = b"line\n" * 100_000
    (tmp_path / "plain-name").write_bytes(pack(content) + pack(b"end"))
    (part,) = parts(tmp_path / "plain-name")
    assert b"".join(iter(lambda: part.stream.read(70_001), b"")) == content + b"end"
    part.stream.close()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_a_tar_is_read_in_every_form(tmp_path, mode, form):
    long = "d/" * 60 + "dmesg.txt"
    with tarfile.open(tmp_path / "a", mode, format=form) as tar:
        for name in (long, "node/ibstat.txt"):
            info = tarfile.TarInfo(name)
            info.size = 5
            tar.addfile(info, io.BytesIO(b"hello"))
    found = parts(tmp_path / "a")
    assert [part.path for part in found] == [f"{tmp_path}/a:{long}", f"{tmp_path}/a:node/ibstat.txt"]
    assert [text_of(part) for part in found] == [b"hello", b"hello"]
    assert found[1].group == f"{tmp_path}/a:node"


def test_a_pax_name_beyond_ascii_is_read(tmp_path):
    make_tar(tmp_path / "a.tar", {"n\u00f6de/\u20ac.txt": b"x"})
    assert parts(tmp_path / "a.tar")[0].path.endswith(":n\u00f6de/\u20ac.txt")


TREE = {"n/sys/class/infiniband/mlx5_0/fw_ver": b"28.1\n", "n/proc/sys/kernel/hostname": b"node-a\n"}


def test_a_captured_tree_in_a_tar_is_one_tree(tmp_path):
    members = {**TREE, "n/sys/class/net": (tarfile.SYMTYPE, "../devices"), "n/dmesg.txt": b"x"}
    text, tree = parts(make_tar(tmp_path / "a.tgz", members, "w:gz"))
    assert text.group == tree.group == f"{tmp_path}/a.tgz:n"
    host = CapturedHost(tree.tree)
    assert host.read("/sys/class/infiniband/mlx5_0/fw_ver") == "28.1"
    assert host.tree.entry("/sys/class/net") == "../devices"


def test_a_captured_tree_in_a_zip_is_one_tree(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive_:
        for name, content in TREE.items():
            archive_.writestr(name, content)
        link = zipfile.ZipInfo("n/sys/link")
        link.external_attr = 0o120777 << 16
        archive_.writestr(link, "class")
    (tree,) = parts(tmp_path / "a.zip")
    assert CapturedHost(tree.tree).read("/proc/sys/kernel/hostname") == "node-a"
    assert tree.tree.entry("/sys/link") == "class"


def test_a_captured_tree_in_a_folder_is_one_tree(tmp_path):
    for name, content in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "n/dmesg.txt").write_text("x")
    tree, text = parts(tmp_path)
    text.stream.close()
    assert CapturedHost(tree.tree).read("/sys/class/infiniband/mlx5_0/fw_ver") == "28.1"
    assert tree.group == text.group == str(tmp_path / "n")


def test_a_captured_tree_in_a_text_has_an_earlier_sample_beside_it(tmp_path):
    (tmp_path / "tree.txt").write_text("# seconds 12\n/sys/x:2\n")
    (tmp_path / "tree.before.txt").write_text("# seconds 2\n/sys/x:1\n")
    (tree,) = parts(tmp_path)
    assert (tree.seconds, tree.before_seconds) == (12, 2)
    assert tree.before.entry("/sys/x") == b"1"


def test_a_captured_tree_is_known_by_its_first_line_too(tmp_path):
    (tmp_path / "node.capture").write_text("# seconds 12\n/sys/x:2\n")
    assert isinstance(parts(tmp_path / "node.capture")[0], GivenTree)


def test_zeros_that_tar_pads_sysfs_files_with_are_taken_off(tmp_path):
    make_tar(tmp_path / "a.tar", {"sys/a": b"1\n" + bytes(4094), "proc/1/environ": b"A=1\0B=2\0", "proc/x": b"\0"})
    tree = parts(tmp_path / "a.tar")[0].tree
    assert [tree.entry(name) for name in ("/sys/a", "/proc/1/environ", "/proc/x")] == [b"1\n", b"A=1\0B=2\0", b""]


def test_a_folder_named_dev_alone_is_no_captured_tree(tmp_path):
    assert isinstance(parts(make_tar(tmp_path / "a.tar", {"dev/notes.txt": b"x"}))[0], GivenText)


def test_members_out_of_the_archive_are_not_taken(tmp_path):
    members = {"../x": b"1", "/etc/passwd": b"2", "a/../../y": b"3", "ok.txt": b"4"}
    text, refused = parts(make_tar(tmp_path / "a.tar", members))
    assert text_of(text) == b"4"
    assert "and 2 more" in refused.path and "out of the archive" in refused.reason
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar"]


def test_links_of_an_archive_lead_nowhere_outside(tmp_path):
    members = {
        "sys/class/x": (tarfile.SYMTYPE, "/etc/passwd"),
        "sys/y": (tarfile.LNKTYPE, "/etc/passwd"),
        "sys/z": b"z",
    }
    host = CapturedHost(parts(make_tar(tmp_path / "a.tar", members))[0].tree)
    for path in ("/sys/class/x", "/sys/y"):
        with pytest.raises(Exception, match=r"not there|does not hold"):
            host.read(path)


def test_a_hard_link_is_the_file_that_it_is_to(tmp_path):
    members = {"a.txt": b"hello", "b.txt": (tarfile.LNKTYPE, "a.txt")}
    assert [text_of(part) for part in parts(make_tar(tmp_path / "a.tar", members))] == [b"hello", b"hello"]


def test_links_out_of_a_folder_are_not_opened(tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "given"
    (folder / "sys").mkdir(parents=True)
    (folder / "x.log").symlink_to("../secret")
    (folder / "gone.log").symlink_to("nowhere")
    (folder / "inside.log").write_text("inside")
    (folder / "again.log").symlink_to("inside.log")
    (folder / "sys/x").symlink_to(tmp_path / "secret")
    (folder / "sub").symlink_to(tmp_path)
    found = parts(folder)
    assert {text_of(part) for part in found if isinstance(part, GivenText)} == {b"inside"}
    assert sorted(os.path.basename(part.path) for part in found if isinstance(part, Refused)) == ["gone.log", "x.log"]
    (tree,) = [part for part in found if isinstance(part, GivenTree)]
    with pytest.raises(Exception, match=r"not there|does not hold"):
        CapturedHost(tree.tree).read("/sys/x")


def test_a_pipe_is_read_as_it_comes(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(gzip.compress(b"hello" * 1000))).start()
    (part,) = parts(tmp_path / "pipe", deadline=time.monotonic() + 10)
    assert text_of(part) == b"hello" * 1000


def test_a_pipe_that_nobody_writes_to_is_waited_for_until_time_is_up(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFile, match="in time"):
        parts(tmp_path / "pipe", deadline=time.monotonic() + 0.1)


def test_an_archive_through_a_pipe_is_read(tmp_path, monkeypatch):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive_:
        archive_.writestr("x.txt", "hello")
    reader, writer = os.pipe()
    os.write(writer, content.getvalue())
    os.close(writer)
    with open(reader) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        (part,) = parts("-")
        assert part.path == "-:x.txt" and text_of(part) == b"hello"


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/nosuch", "a\0b"])
def test_what_is_no_file_is_an_error(path):
    with pytest.raises(BadFile, match="wanted a file, folder, archive or -"):
        parts(path)


def test_an_empty_folder_and_an_empty_archive_are_errors(tmp_path):
    (tmp_path / "d").mkdir()
    zipfile.ZipFile(tmp_path / "a.zip", "w").close()
    for name in ("d", "a.zip"):
        with pytest.raises(BadFile, match="an empty folder or archive"):
            parts(tmp_path / name)


def damaged():
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as t:
        info = tarfile.TarInfo("x")
        info.size = 3000
        t.addfile(info, io.BytesIO(b"x" * 3000))
    tar = tar.getvalue()
    zip_ = io.BytesIO()
    with zipfile.ZipFile(zip_, "w") as z:
        z.writestr("x", "y" * 3000)
    zip_ = zip_.getvalue()
    return {
        "tar cut in a member": tar[:1500],
        "tar with a wrong checksum": tar[:10] + b"Z" + tar[11:],
        "gzip damaged": gzip.compress(b"x" * 5000)[:20] + b"\xff" * 30,
        "xz cut off": lzma.compress(os.urandom(5000))[:20],
        "bzip2 damaged": b"BZh9" + b"x" * 100,
        "zip cut off": zip_[:500],
        "zip with wrong content": zip_.replace(b"yyyy", b"zzzz"),
        "zstd": b"\x28\xb5\x2f\xfd" + bytes(100),
        "gzip of a zip": gzip.compress(zip_),
        "gzip of a gzip": gzip.compress(gzip.compress(b"x")),
    }


@pytest.mark.parametrize("name", damaged())
def test_a_damaged_archive_is_an_error_where_it_was_named_and_a_gap_in_a_folder(tmp_path, name):
    (tmp_path / "x").write_bytes(damaged()[name])
    with pytest.raises(BadFile):
        parts(tmp_path / "x")
    (part,) = parts(tmp_path)
    assert isinstance(part, Refused)


def test_what_comes_before_the_damage_is_read(tmp_path):
    (tmp_path / "x").write_bytes(gzip.compress(os.urandom(300_000))[:-40_000])
    stream = archive.Unpacked(archive.Bytes((tmp_path / "x").read_bytes()), "gzip", time.monotonic() + 10)
    assert len(stream.read(1 << 20)) > 100_000
    with pytest.raises(archive.Damaged):
        stream.read(1)


def test_bytes_after_a_compressed_file_are_left():
    stream = archive.Unpacked(archive.Bytes(gzip.compress(b"hello") + b"garbage"), "gzip", time.monotonic() + 10)
    assert stream.read(100) == b"hello"


def test_an_archive_in_an_archive_is_not_opened(tmp_path):
    inner = make_tar(tmp_path / "b.tar", {"x": b"y"}).read_bytes()
    for content in (inner, gzip.compress(inner)):
        (part,) = parts(make_tar(tmp_path / "a.tar", {"b.tar": content}))
        assert isinstance(part, Refused) and "archive in an archive" in part.reason


def test_a_compressed_text_in_an_archive_is_read(tmp_path):
    (part,) = parts(make_tar(tmp_path / "a.tar", {"dmesg.1.gz": gzip.compress(b"hello")}))
    assert text_of(part) == b"hello"


def test_too_much_in_an_archive_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(given, "FILES", 3)
    found = parts(make_tar(tmp_path / "a.tar", {f"{n}.txt": b"x" for n in range(6)}))
    assert [type(part) for part in found] == [GivenText] * 3 + [Refused]
    monkeypatch.setattr(given, "MEMBER_BYTES", 100)
    text, refused = parts(make_tar(tmp_path / "b.tar", {"a": b"x" * 101, "b": b"y"}))
    assert text_of(text) == b"y" and "longer than" in refused.reason
    monkeypatch.setattr(given, "ARCHIVE_BYTES", 50)
    text, refused = parts(make_tar(tmp_path / "c.tar", {"a": b"x" * 40, "b": b"y" * 40}))
    assert "unpacks to more" in refused.reason


def test_a_folder_is_left_when_time_is_up(tmp_path):
    (tmp_path / "x").write_text("x")
    with pytest.raises(BadFile, match="in time"):
        parts(tmp_path, deadline=time.monotonic() - 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_what_may_not_be_read_is_an_error_or_a_gap(open_path):
    (open_path / "x").write_text("x")
    (open_path / "y").write_text("y")
    (open_path / "x").chmod(0)
    os.seteuid(65534)
    try:
        with pytest.raises(BadFile, match="Permission denied"):
            parts(open_path / "x")
        refused, text = parts(open_path)
    finally:
        os.seteuid(0)
    assert "Permission denied" in refused.reason and text_of(text) == b"y"


def test_no_descriptor_is_left_open(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/x").write_bytes(gzip.compress(b"x")[:10])
    make_tar(tmp_path / "d/a.tar", {"x": b"y"})
    (tmp_path / "d/tree.txt").write_text("/sys/x:1\n")
    before = os.listdir("/proc/self/fd")
    for part in expand(str(tmp_path / "d")):
        if isinstance(part, GivenText):
            part.stream.close()
    assert os.listdir("/proc/self/fd") == before

"""Which node each text is about: the name given, the host a line names, the file's name, the folder; what is assumed is said."""

import pytest

from rdmadiag.evidence.assign import Read, assign
from rdmadiag.evidence.row import Gap, Row


def read(path, hosts=(), tools=("ibstat",), node=None, items=(None,), group="bundle"):
    rows = [(tools[0] if tools else "log", host, Row("port", {}, 1)) for host in items]
    return Read(f"{group}/{path}", group, node, list(hosts), rows, list(tools), True)


def nodes(*reads):
    found, assumed = {}, set()
    for node, _, place, item in assign(reads):
        if isinstance(item, Gap):
            assert item.kind == "assumed" and "NODE=PATH" in item.how
            assumed.add(place.rpartition("/")[2])
        else:
            found.setdefault(place.rpartition("/")[2], []).append(node)
    return found, assumed


def test_the_name_that_was_given_wins():
    assert nodes(read("a.txt", ["h1", "h2"], node="prefill", items=["h1", "h2", None])) == (
        {"a.txt": ["prefill"] * 3},
        set(),
    )


def test_the_host_that_a_line_names_is_its_node():
    assert nodes(read("a.txt", ["h1", "h2"], items=["h1", "h2"])) == ({"a.txt": ["h1", "h2"]}, set())


def test_lines_without_a_host_belong_to_the_only_host_of_their_text():
    assert nodes(read("a.txt", ["h1"], items=["h1", None])) == ({"a.txt": ["h1", "h1"]}, set())


def test_a_text_whose_file_is_named_after_a_host_is_about_it():
    found = nodes(read("log", ["n1", "n2"], items=["n1", "n2"]), read("ibstat-n2.txt"), read("N1.ibstat"))
    assert found == ({"log": ["n1", "n2"], "ibstat-n2.txt": ["n2"], "N1.ibstat": ["n1"]}, set())


def test_a_text_beside_those_of_one_host_is_taken_to_be_about_it_and_that_is_said():
    found = nodes(read("log", ["n1"], items=["n1"]), read("ibstat.txt"))
    assert found == ({"log": ["n1"], "ibstat.txt": ["n1"]}, {"ibstat.txt"})


def test_a_text_beside_those_of_two_hosts_is_taken_to_be_about_both_and_that_is_said():
    found = nodes(read("log", ["n1", "n2"], items=["n1", "n2"]), read("ibstat.txt"))
    assert found == ({"log": ["n1", "n2"], "ibstat.txt": ["n1", "n2"]}, {"ibstat.txt"})


def test_texts_that_name_no_host_are_one_node_named_after_their_folder_and_that_is_said():
    found = nodes(read("ibstat.txt"), read("dmesg.txt", tools=["dmesg"]))
    assert found == ({"ibstat.txt": ["bundle"], "dmesg.txt": ["bundle"]}, {"ibstat.txt"}), "said once"


def test_one_text_alone_is_named_after_its_file():
    assert nodes(read("case.txt", group="/tmp")) == ({"case.txt": ["case"]}, set())


def test_two_texts_of_one_tool_are_two_nodes_named_after_their_files_and_that_is_said():
    found = nodes(read("prefill.log"), read("decode.log"))
    assert found == ({"prefill.log": ["prefill"], "decode.log": ["decode"]}, {"prefill.log", "decode.log"})


@pytest.mark.parametrize("separator", ["-", "_", "."])
def test_files_of_two_nodes_are_told_apart_by_what_is_not_their_tools_name(separator):
    reads = [
        read(f"node-a{separator}ibstat.txt"),
        read(f"node-b{separator}ibstat.txt"),
        read(f"node-a{separator}dmesg.log", tools=["dmesg"]),
        read(f"dmesg{separator}node-b.txt", tools=["dmesg"]),
    ]
    assert list(nodes(*reads)[0].values()) == [["node-a"], ["node-b"], ["node-a"], ["node-b"]]


def test_folders_are_apart():
    found, _ = nodes(read("ibstat.txt", group="a"), read("ibstat2.txt", group="b"))
    assert found == {"ibstat.txt": ["ibstat"], "ibstat2.txt": ["ibstat2"]}

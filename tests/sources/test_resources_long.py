"""A long list of objects is taken as tuples, and gives the same rows as one that is taken as objects."""

import json

import pytest

from rdmadiag.diagnose import check
from rdmadiag.evidence import paste


def objects(count):
    return [
        {"ifindex": n % 4, "ifname": f"mlx5_{n % 4}", "port": 1, "lqpn": n, "rqpn": n + 1, "type": "RC", "state": "RTS", "rq-psn": n, "sq-psn": n,
         "path-mig-state": "MIGRATED", "pdn": n % 8, "pid": 1000 + n % 3, "comm": "python3"}
        for n in range(count)
    ]  # fmt: skip


@pytest.fixture
def rows(tmp_path):
    def read(value):
        text = value if isinstance(value, str) else json.dumps(value)
        (tmp_path / "qp.json").write_text(text)
        names, found, _ = check.query(check.Request(given=(str(tmp_path),)), "SELECT * FROM qp ORDER BY rowid")
        return names, found

    return read


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"pid": None, "comm": "[nvme_rdma]"},
        {"state": 5, "lqpn": "x", "comm": ["a"]},
        {"lqpn": 1 << 70, "pdn": True},
        {"comm": {"ifname": "inner"}},
        {"comm": 'a "quoted" \\ name'},
    ],
)
def test_a_long_list_gives_the_same_rows_as_a_short_one(rows, monkeypatch, changed):
    value = [entry | changed if n % 7 == 3 else entry for n, entry in enumerate(objects(600))]
    assert len(json.dumps(value)) > paste.LONG_LIST_CHARACTERS
    quick = rows(value)
    monkeypatch.setattr(paste, "LONG_LIST_CHARACTERS", 1 << 30)
    assert rows(value) == quick
    assert len(quick[1]) == 600


@pytest.mark.parametrize("spoil", [lambda e: e.pop("rqpn"), lambda e: e.clear()])
def test_a_list_whose_objects_are_not_alike_is_taken_as_objects(rows, monkeypatch, spoil):
    value = objects(600)
    spoil(value[77])
    found = rows(value)
    monkeypatch.setattr(paste, "LONG_LIST_CHARACTERS", 1 << 30)
    assert rows(value) == found
    assert len(found[1]) >= 599


def test_a_long_list_that_is_cut_off_or_holds_other_things_is_taken_as_objects(rows, monkeypatch):
    for text in (json.dumps(objects(600))[:-300], json.dumps([*objects(600), "x", [1]])):
        found = rows(text)
        with monkeypatch.context() as patched:
            patched.setattr(paste, "LONG_LIST_CHARACTERS", 1 << 30)
            assert rows(text) == found
        assert len(found[1]) >= 590

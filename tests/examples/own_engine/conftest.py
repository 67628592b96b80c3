"""The engine under test as a fixture: its two command lines are all that rdmadiag has to know of it."""

from pathlib import Path

import pytest

ENGINE = Path(__file__).parent / "engine.py"
PYTHON = "/usr/bin/python3"  # the one that has pyverbs


@pytest.fixture
def engine(kv_transfer):
    """Return a function that starts the engine between the hosts of the lab for so many seconds."""

    def start(seconds):
        return kv_transfer(
            "command",
            server=f"{PYTHON} {ENGINE} receive {{device}} {{gid_index}} {{plain_address}} 7700",
            client=f"{PYTHON} {ENGINE} send {{device}} {{gid_index}} {{peer_plain_address}} 7700 {seconds}",
            ready='"event": "ready"',
            carrier="rdma",
        )

    return start

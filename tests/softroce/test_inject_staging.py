"""The staging path on a real rxe: `rdmadiag inject --dev` by the guest's own root, which has a mark; refused without it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rdmadiag.lab import Lab
from tests.softroce.conftest import ROOT, command, environment
from tests.softroce.test_inject import traffic

MARK = {
    "schema": "rdmadiag.staging/1",
    "faults": ["loss", "delay", "jitter", "link-down", "bad-rkey"],
    "netdevs": ["v1"],
    "max_seconds": 60,
    "max_percent": 50,
    "max_packets_per_second": 1000,
}


@pytest.fixture
def staging(lab: Lab) -> Iterator[Lab]:
    """Give the guest a staging mark; at the end nothing of an injection is left there."""
    text = "mkdir -p /etc/rdmadiag && cat > /etc/rdmadiag/staging.json && chmod 644 /etc/rdmadiag/staging.json"
    assert lab.run(["sh", "-c", text], stdin=json.dumps(MARK).encode()).code == 0
    look = [
        "sh",
        "-c",
        # Of two routes to the same network the one whose link was down comes last: the order is not restored.
        "nft list tables; tc qdisc show; ip -o link; ip -o addr; ip route | sort; ls /run/rdmadiag-inject 2>/dev/null",
    ]
    before = lab.run(look).text
    yield lab
    inject(lab, "revert", "--all")
    lab.run(["rm", "-rf", "/etc/rdmadiag"])
    assert lab.run(look).text == before


def inject(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `rdmadiag inject` in the guest, as on any host."""
    argv = command(
        "exec", lab.name, "--", "env", "XDG_STATE_HOME=/run/state", sys.executable, "-m", "rdmadiag", "inject", *words
    )
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
    )


def test_without_a_mark_and_outside_of_it_a_device_is_refused(staging: Lab) -> None:
    other = inject(staging, "loss", "--for", "5s", "--dev", "rxe2")
    assert other.returncode == 7 and "does not allow netdev v2; it allows: v1" in other.stderr, other.stderr
    much = inject(staging, "loss", "--percent", "60", "--for", "5s", "--dev", "rxe1")
    assert much.returncode == 7 and "--percent 60 is more than the 50 %" in much.stderr, much.stderr
    staging.run(["rm", "/etc/rdmadiag/staging.json"])
    refused = inject(staging, "loss", "--for", "5s", "--dev", "rxe1")
    assert refused.returncode == 7 and "this host is not marked for fault injection" in refused.stderr, refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("loss", "--percent", "20"),
        ("delay", "--ms", "30"),
        ("jitter", "--ms", "30", "--vary", "20"),
        ("link-down",),
        ("bad-rkey",),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.long
def test_a_fault_on_a_device_fires_and_comes_off(staging: Lab, words: tuple[str, ...]) -> None:
    with traffic(staging):
        ran = inject(staging, *words, "--for", "20s", "--dev", "rxe1", "--format", "json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    outcome = json.loads(ran.stdout)
    assert outcome["verdict"] == "FIRED" and outcome["clean"], outcome

"""Write the expectation file of a kind of node from a good one: what all its adapters have in common."""

from __future__ import annotations

from typing import Any, NamedTuple

from rdmadiag.diagnose.check import Checked
from rdmadiag.errors import BadInput
from rdmadiag.evidence.store import Evidence

SCHEMA = "rdmadiag.expect/1"
_SOFTWARE = "('rxe', 'siw')"

# What is expected, and the query that gives its values on a node: one value, or it is left out.
_QUERIES = {
    "rate_gbps": "SELECT DISTINCT p.rate_gbps FROM port p JOIN device d USING (node, device) WHERE p.state = 'ACTIVE'"
    f" AND p.rate_gbps > 0 AND coalesce(d.driver, '') NOT IN {_SOFTWARE}",
    "active_mtu": "SELECT DISTINCT active_mtu FROM port WHERE state = 'ACTIVE' AND active_mtu IS NOT NULL",
    "mtu_bytes": "SELECT DISTINCT n.mtu_bytes FROM port p JOIN netdev n ON n.node = p.node AND n.netdev = p.netdev"
    " WHERE p.state = 'ACTIVE' AND p.link_layer = 'Ethernet' AND n.mtu_bytes IS NOT NULL",
    "fw_ver": f"SELECT DISTINCT fw_ver FROM device WHERE fw_ver <> '' AND coalesce(driver, '') NOT IN {_SOFTWARE}",
}
_NEEDED = {"device", "port"}


class Written(NamedTuple):
    """An expectation file's content, and what was left out of it with the reason."""

    content: dict[str, Any]
    left_out: dict[str, str]


def init(checked: Checked) -> Written:
    """Make the expectation file of a checked node. Raises BadInput for a node that is not good, or not seen well enough."""
    report, evidence = checked.report, checked.evidence
    nodes = [node["node"] for node in report["nodes"]]
    if len(nodes) != 1:
        raise BadInput(
            f"an expectation file is made of one node, not of {len(nodes)} ({', '.join(nodes[:4]) or 'none'})"
        )
    if report["summary"]["exit_code"] == 1:
        wrong = [f["rule"] for f in report["findings"] if f["answer"] == "confirmed" and f["severity"] != "info"]
        raise BadInput(
            f"{nodes[0]} is not a good node: {', '.join(dict.fromkeys(wrong))}; mend it first, or leave a rule out with --skip"
        )
    for gap in report["gaps"]:
        if _NEEDED & set(gap["tables"]) and gap["kind"] != "assumed":
            raise BadInput(f"{nodes[0]} was not seen well enough: {', '.join(gap['tables'])}: {gap['reason']}")
    count = _one(evidence, f"SELECT count(*) FROM device WHERE coalesce(driver, '') NOT IN {_SOFTWARE}")[0]
    if not count:
        raise BadInput(f"{nodes[0]} has no RDMA adapter: nothing could be expected of others")
    content: dict[str, Any] = {"schema": SCHEMA, "nic_count": count}
    left_out: dict[str, str] = {}
    for name, query in _QUERIES.items():
        values = _one(evidence, query)
        if len(values) == 1:
            content[name] = values[0]
        else:
            several = f"its adapters differ: {', '.join(map(str, sorted(values, key=str)[:6]))}"
            left_out[name] = several if values else "not seen"
    left_out["dscp"] = "set by the site, not read from a node"
    return Written(content, left_out)


def _one(evidence: Evidence, query: str) -> list[Any]:
    return [row[0] for row in evidence.db.execute(query)]

"""Packets lost at random, as on a bad cable or in a switch whose buffer overflows."""

from rdmadiag.faults import Diagnosis, Parameter, Plan, Target, Values
from rdmadiag.faults import _path as path
from rdmadiag.lab.pattern import randomly

TITLE = "A share of packets is lost at random"
REACH = "path"
PARAMETERS = (Parameter("percent", 1.0, "share of packets that are lost", "%", 0.01, 100), path.SEED, *path.BETWEEN)
SIGNS = (
    "responder: out_of_seq_request and a NAK for a PSN sequence error; requester: rcvd_seq_err, completer_retry_err",
    "the last packet of a message lost: no NAK, the requester's timer ends the wait",
    "an ACK lost: duplicate_request at the responder",
)
DIAGNOSIS = Diagnosis(
    (
        "wire-tap-loss",
        "packet-loss-on-path",
    ),
    "Packets go in at one end and do not come out at the other; counters of both ends agree",
    parameters={"percent": 5.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Drop at the ingress, where it is a loss on the wire; an egress drop at the sender is an error it sees (Linux 6.10)."""
    pattern = randomly(values["percent"] / 100, values["seed"])
    return path.table_plan(target, path.ingress(target, values, "", "drop", pattern))

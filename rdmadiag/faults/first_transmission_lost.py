"""A share of packets is lost the first time that they are sent, and never again: what is sent again always arrives."""

from rdmadiag.faults import Diagnosis, Moves, Parameter, Plan, Target, Values
from rdmadiag.faults import _inflight as inflight
from rdmadiag.faults import _path as path

TITLE = "A share of request packets is lost at their first transmission only"
REACH = "switch"
PARAMETERS = (Parameter("percent", 2.0, "share of them", "%", 0.1, 100), path.SEED, inflight.FROM, inflight.TO)
SIGNS = (
    "responder: out_of_seq_request and a NAK for each gap; requester: rcvd_seq_err, completer_retry_err, and one resend mends it",
    "no timer ends a wait but where nothing followed the lost packet; retries never run out, whatever the share",
)
DIAGNOSIS = Diagnosis(
    (
        "wire-tap-loss",
        "packet-loss-on-path",
    ),
    "As with loss: that what is sent again always passes cannot be told from luck",
    parameters={"percent": 5.0},
)


def plan(target: Target, values: Values) -> Plan:
    """Drop by PSN that was not seen before, in the program that all packets of a queue pair visit."""
    match = {
        "opcode": list(inflight.REQUESTS),
        "retransmission": 0,
        "probability": values["percent"] / 100,
        "seed": values["seed"],
    }
    moves = Moves("counter", path.RETRANSMISSION)
    return inflight.plan(target, values, match, {"do": "drop"}, "drops packets that it sees for the first time", moves)

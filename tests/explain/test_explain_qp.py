"""The QP state machine, as the kernel has it."""

import itertools
import re
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.diagnose import rulebook
from rdmadiag.errors import BadInput
from rdmadiag.explain import qp_state, qp_states, qp_transition

STATE = qp_states.BITS["STATE"]


def mask(*names):
    return sum(qp_states.BITS[name] for name in names)


@pytest.mark.parametrize(
    ("old", "new", "kind", "required"),
    [
        ("RESET", "INIT", "RC", 0x39),
        ("INIT", "RTR", "RC", 0x129181),
        ("RTR", "RTS", "RC", 0x12E01),
        ("RESET", "INIT", "UC", 0x39),
        ("INIT", "RTR", "UC", 0x101181),
        ("RTR", "RTS", "UC", 0x10001),
        ("RESET", "INIT", "UD", 0x71),
        ("INIT", "RTR", "UD", 0x1),
        ("RTR", "RTS", "UD", 0x10001),
        ("RTR", "RTS", "XRC_TGT", 0x10201),
        ("RESET", "INIT", "RAW_PACKET", 0x21),
    ],
)
def test_the_masks_that_programs_pass_are_the_required_ones(old, new, kind, required):
    assert qp_states.TABLE[old, new][kind][0] | STATE == required
    assert qp_states.check(old, new, kind, required).ok
    assert qp_transition.decode(old, new, kind)["required_mask"] == f"{required:#x}"


def test_a_missing_attribute_is_named():
    verdict = qp_states.check("INIT", "RTR", "RC", 0x129181 & ~mask("PATH_MTU"))
    assert not verdict.ok and qp_states.attributes(verdict.missing) == ["PATH_MTU"]


def test_an_attribute_of_another_type_is_refused():
    verdict = qp_states.check("INIT", "RTR", "UC", 0x101181 | mask("MIN_RNR_TIMER"))
    assert qp_states.attributes(verdict.unknown) == ["MIN_RNR_TIMER"]
    assert qp_states.check("RTR", "RTS", "UD", mask("STATE", "SQ_PSN", "TIMEOUT")).unknown == mask("TIMEOUT")


def test_state_counts_as_missing_only_when_the_state_changes():
    assert qp_states.check("RESET", "INIT", "RC", 0x38).missing == STATE
    assert qp_states.check("RTS", "RTS", "RC", mask("MIN_RNR_TIMER")).ok


def test_a_bit_without_a_name_is_refused_and_shown():
    verdict = qp_states.check("RTS", "ERR", "RC", STATE | 1 << 30)
    assert qp_states.attributes(verdict.unknown) == ["bit 30"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RESET", "RTR"),
        ("RESET", "RTS"),
        ("INIT", "RTS"),
        ("ERR", "INIT"),
        ("RTS", "INIT"),
        ("RESET", "ERR"),
        ("RTS", "SQE"),
        ("SQD", "RTR"),
    ],
)
def test_illegal_transitions_decode_with_the_legal_ones(old, new):
    answer = qp_transition.decode(old, new)
    assert answer["legal"] is False
    assert answer["legal_from_here"] == qp_states.following(old)
    assert not qp_states.check(old, new, "RC", 0xFFFFFF).legal


def test_the_way_that_is_advised_is_legal():
    assert qp_transition.decode("ERR", "RTS")["next"] == ["go ERR -> RESET -> INIT -> RTR -> RTS"]
    assert "no sequence" in qp_transition.decode("RTS", "SQE")["next"][0]


def test_every_state_can_be_reset_and_all_but_reset_can_fail():
    for state in qp_states.STATES:
        assert (state, "RESET") in qp_states.TABLE
        assert ((state, "ERR") in qp_states.TABLE) == (state != "RESET")
    assert len(qp_states.TABLE) == 22


def test_a_given_mask_is_judged():
    answer = qp_transition.decode("INIT", "->", "RTR", "UC", "0x121181")
    assert (answer["accepted"], answer["missing"], answer["refused"]) == (False, [], ["IBV_QP_MAX_DEST_RD_ATOMIC"])


@given(st.sampled_from(sorted(qp_states.TABLE)), st.sampled_from(qp_states.QP_TYPES), st.integers(0, 2**26 - 1))
def test_a_mask_is_accepted_when_it_holds_all_required_and_only_allowed_bits(pair, kind, bits):
    required, optional = qp_states.TABLE[pair][kind]
    assert not required & optional and not (required | optional) & STATE
    verdict = qp_states.check(*pair, kind, bits | STATE)
    assert verdict.missing == required & ~bits
    assert verdict.unknown == bits & ~required & ~optional & ~STATE


def test_states_and_types_are_known_by_every_spelling():
    assert [qp_states.state(word) for word in ("IBV_QPS_RTS", "rts", "3", "error")] == ["RTS", "RTS", "RTS", "ERR"]
    assert [qp_states.qp_type(word) for word in ("IBV_QPT_UD", "xrc", "xrc-recv")] == ["UD", "XRC_INI", "XRC_TGT"]
    for word in ("7", "RTX", "", "UNKNOWN"):
        with pytest.raises(BadInput, match="RESET, INIT, RTR, RTS, SQD, SQE, ERR"):
            qp_states.state(word)


def test_every_state_says_what_may_be_posted():
    for number, name in enumerate(qp_states.STATES):
        answer = qp_state.decode(str(number))
        assert answer["name"] == name and answer["number"] == number
        assert answer["next_states"] == qp_states.following(name)
    assert qp_state.decode("RTR")["post_send"] == "no" and qp_state.decode("INIT")["post_recv"].startswith("yes")


def test_the_rule_that_judges_transitions_knows_the_same_ones() -> None:
    (rule,) = (one for one in rulebook.load() if one.id == "qp-transition-not-allowed")
    case = re.search(r"CASE WHEN .*? END", rule.query, re.S)
    assert case
    pairs = list(itertools.product(qp_states.STATES, repeat=2))
    values = ", ".join(f"('{old}', '{new}')" for old, new in pairs)
    wrong = sqlite3.connect(":memory:").execute(
        f"WITH e(from_state, to_state) AS (VALUES {values}) SELECT {case[0]} FROM e"
    )
    assert {pair for pair, (one,) in zip(pairs, wrong, strict=True) if not one} == set(qp_states.TABLE)

"""What holds for every topic of `rdmadiag explain`."""

import importlib
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdmadiag import explain, registry
from rdmadiag.errors import BadInput

TOPICS = registry.names(explain)
WORDS = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.from_regex(r"(0x)?[0-9a-fA-F]{1,9}", fullmatch=True),
        st.sampled_from(
            [
                "mlx5",
                "efa",
                "RC",
                "INIT",
                "RTR",
                "->",
                "12",
                "phys",
                "rxe",
                "ENOMEM",
                "ibv_reg_mr",
                "7ms",
                "",
                "retry_cnt=7",
                "rx_prio3_pause",
                "vport_",
                "fe80::1",
                "00000030:",
                "0",
                "31",
                "\ud800",
                "²",
                "٣",
                "0x",
                "1e9s",
                "nan",
                "infs",
                "9" * 5000,
            ]
        ),
    ),
    max_size=6,
)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_example_decodes_to_json_with_what_matters_first(topic):
    module = importlib.import_module(f"rdmadiag.explain.{topic}")
    assert module.HELP and "\n" not in module.HELP and len(module.EXAMPLES) >= 3
    for example in module.EXAMPLES:
        answer = module.decode(*example)
        assert json.loads(json.dumps(answer)) == answer
        assert {"name", "meaning", "next", "sources"} <= answer.keys()
        assert "name" in list(answer)[:3]
        assert answer["name"] and answer["meaning"]
        for key in ("causes", "next", "sources"):
            assert isinstance(answer.get(key, []), list), key
            assert all(isinstance(text, str) and len(text) > 3 for text in answer.get(key, [])), key


@pytest.mark.parametrize("topic", TOPICS)
@given(words=WORDS)
@settings(max_examples=150, deadline=None)
def test_any_text_decodes_or_is_refused_as_bad_input(topic, words):
    module = importlib.import_module(f"rdmadiag.explain.{topic}")
    try:
        json.dumps(module.decode(*words))
    except BadInput as error:
        assert len(str(error)) < 4000


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic not in ("qp_states", "counters")])
def test_no_words_are_refused_with_what_is_wanted(topic):
    with pytest.raises(BadInput, match="want"):
        importlib.import_module(f"rdmadiag.explain.{topic}").decode()


def test_aliases_name_topics_and_are_none_themselves():
    names = {topic.replace("_", "-") for topic in TOPICS}
    assert set(explain.ALIASES.values()) <= names
    assert not names & explain.ALIASES.keys()


def test_the_tables_that_every_check_imports_load_no_heavy_module():
    code = (
        "import sys; before = set(sys.modules); import rdmadiag.explain.counters, rdmadiag.explain.wc_status; "
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"dataclasses", "difflib", "inspect", "socket", "ipaddress", "click", "json"} & set(loaded)

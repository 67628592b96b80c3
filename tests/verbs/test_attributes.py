"""RC attributes: bounds, presets, what a dead path costs."""

from __future__ import annotations

import pytest

from rdmadiag.errors import BadInput
from rdmadiag.verbs import attributes
from rdmadiag.verbs.attributes import RcAttributes


@pytest.mark.parametrize("name", list(attributes.PRESETS))
def test_every_preset_is_within_its_bounds(name: str) -> None:
    assert attributes.preset(name).checked() is attributes.PRESETS[name]


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"no RC attributes named 'mlx'; known: mooncake, ucx, nccl, 3fs, fast, rnr"):
        attributes.preset("mlx")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"timeout": 32}, "timeout 32: wanted 0 to 31"),
        ({"retry_cnt": 8}, "retry_cnt 8: wanted 0 to 7"),
        ({"rnr_retry": -1}, "rnr_retry -1: wanted 0 to 7"),
        ({"psn": 1 << 24}, "psn 16777216: wanted 0 to 0xffffff"),
        ({"path_mtu": 1500}, "path_mtu 1500: wanted one of 256, 512, 1024, 2048, 4096"),
    ],
)
def test_a_value_out_of_bounds_is_named_with_its_bounds(given: dict[str, int], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        RcAttributes(**given).checked()


def test_a_dead_path_is_reported_after_one_timeout_more_than_retries() -> None:
    assert RcAttributes(timeout=14, retry_cnt=7).detection_seconds == pytest.approx(0.537, abs=0.001)
    assert attributes.preset("nccl").detection_seconds == pytest.approx(34.4, abs=0.1)
    assert RcAttributes(timeout=0).detection_seconds is None


def test_engines_start_at_psn_0_and_others_at_random() -> None:
    assert {attributes.preset(name).first_psn() for name in ("mooncake", "ucx", "nccl", "3fs")} == {0}
    drawn = {attributes.preset("fast").first_psn() for _ in range(20)}
    assert len(drawn) > 10
    assert all(0 <= psn <= attributes.PSN_MASK for psn in drawn)

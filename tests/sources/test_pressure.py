"""How busy a node is, from what the kernel prints."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rdmadiag.sources import pressure

STAT = "cpu  1 2 3\ncpu0 1 2 3\ncpu1 1 2 3\nintr 1\nprocs_running 7\nprocs_blocked 0\n"
PSI = "some avg10=97.88 avg60=81.50 avg300=65.24 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def test_the_kernels_texts_are_read() -> None:
    assert pressure.parse_stat(STAT) == {"processors": 2, "running": 7}
    assert pressure.parse_loadavg("9.11 8.63 5.92 11/179 31317\n") == {"load1": 9.11}
    assert pressure.parse_meminfo("MemTotal:       24684092 kB\nMemAvailable:   20702764 kB\nSwapTotal:  0 kB\n") == {
        "memory_total_kib": 24684092, "memory_available_kib": 20702764, "swap_total_kib": 0,
    }  # fmt: skip
    assert pressure.parse_pressure("cpu", PSI) == {"cpu_some_share": 0.9788, "cpu_full_share": 0.0}


@given(st.text(st.characters(codec="ascii") | st.sampled_from("cpu0 some avg10=MemTotal:kB\n"), max_size=200))
def test_garbage_is_no_reading_and_no_error(text: str) -> None:
    for found in (
        pressure.parse_stat(text),
        pressure.parse_loadavg(text),
        pressure.parse_meminfo(text),
        pressure.parse_pressure("io", text),
    ):
        assert all(isinstance(value, (int, float)) for value in found.values())

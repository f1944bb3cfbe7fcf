"""The verdict and its arithmetic; needs no root."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.fidelity.busy_pollers import invalid_reasons, spinners
from emulator.fidelity.monitor import late_percentile
from emulator.fidelity.sources import (
    CoreTimes,
    busiest_share,
    read_cores,
    read_run_delays_ns,
    stolen_share,
    worst_lateness,
)
from emulator.fidelity.thresholds import THRESHOLDS, thresholds_of
from emulator.fidelity.verdict import Figures, judge
from emulator.ports.port_watch import PortService

_CLEAN = Figures(0.1, 0.0, 0, 0, 0.01, 0.01, 0.01, 60_000, 0)


def test_every_figure_has_one_threshold() -> None:
    assert [t.name for t in THRESHOLDS] == [f.name for f in fields(Figures)]


def test_a_clean_run_is_valid() -> None:
    verdict = judge(_CLEAN)
    assert verdict.valid
    assert verdict.reasons == ()
    assert verdict.as_dict()["samples"] == {f.name: getattr(_CLEAN, f.name) for f in fields(_CLEAN)}


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=lambda t: t.name)
def test_each_threshold_alone_makes_a_run_invalid(threshold) -> None:  # type: ignore[no-untyped-def]
    at = Figures(**{threshold.name: threshold.limit})
    above = Figures(**{threshold.name: threshold.limit * 2 + 1})
    assert judge(at).valid
    verdict = judge(above)
    assert not verdict.valid
    assert len(verdict.reasons) == 1
    assert threshold.reason in verdict.reasons[0]


def test_a_reason_quotes_figure_and_limit() -> None:
    reasons = judge(Figures(saturated_share=0.456, timer_lateness_ns=4_620_874)).reasons
    assert reasons[0].startswith("a core was saturated in 46% of the samples (limit 20%): a packet")
    assert "4,620,874 ns late or more (limit 1,000,000): packets leave" in reasons[1]


def test_timers_of_slow_links_may_be_later() -> None:
    """By 3% of a frame, which is what a port may fall behind: 148 ms for 9 KB at 0.5 Mb/s."""
    frame_ns = 148_000_000
    thresholds = thresholds_of(frame_ns)
    at, above = 1_000_000 + frame_ns * 3 // 100, 1_000_000 + frame_ns * 31 // 1000
    assert judge(Figures(timer_lateness_ns=at), thresholds).valid
    assert not judge(Figures(timer_lateness_ns=above), thresholds).valid
    assert judge(Figures(pause_reaction_ns=7), thresholds_of(0, 7)).valid
    assert not judge(Figures(pause_reaction_ns=7), thresholds).valid


def test_what_could_not_be_measured_violates_nothing() -> None:
    assert judge(Figures()).valid


def test_cores_are_read_from_proc_stat(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  30 0 20 100 10 5 5 30 0 0\n"
        "cpu0 20 0 10 50 5 5 0 10 0 0\n"
        "cpu1 10 0 10 50 5 0 5 20 0 0\n"
        "intr 12345\n"
    )
    assert read_cores(stat) == (CoreTimes(100, 45, 10), CoreTimes(100, 45, 20))


def test_the_busiest_core_counts_not_the_mean() -> None:
    before = (CoreTimes(0, 0, 0), CoreTimes(0, 0, 0))
    after = (CoreTimes(100, 5, 0), CoreTimes(100, 99, 4))
    assert busiest_share(before, after) == 0.99
    assert stolen_share(before, after) == 0.02


@given(st.lists(st.integers(0, 10**9), max_size=400))
def test_one_hiccup_is_no_percentile(values: list[int]) -> None:
    found = late_percentile(values)
    if len(values) < 2:
        assert found is None
        return
    assert found is not None
    worst = sorted(values)
    assert found <= worst[-2]
    assert sum(value > found for value in values) <= max(1, len(values) // 100)


def test_a_process_that_has_gone_has_no_delays() -> None:
    assert read_run_delays_ns(2**22 + 1) == {}


def _service(lost_ns: int, busy_ns: int) -> PortService:
    return PortService(lost_ns=lost_ns, busy_ns=busy_ns, served_ns=busy_ns - lost_ns, periods=1)


def test_the_port_that_lost_most_counts() -> None:
    services = [_service(0, 10**9), _service(2 * 10**8, 10**9), PortService()]
    assert worst_lateness(services, 0) == 0.2


def test_a_last_timer_that_was_late_is_no_lost_rate() -> None:
    assert worst_lateness([_service(900_000, 10**7)], 1_000_000) == 0
    assert worst_lateness([_service(1_100_000, 10**7)], 1_000_000) == pytest.approx(0.01)


def test_without_a_long_busy_period_nothing_is_said() -> None:
    assert worst_lateness([PortService(), PortService()], 0) is None
    assert worst_lateness([], 0) is None


def test_pollers_that_were_served_late_are_named(tmp_path: Path) -> None:
    counts = tmp_path / "busy_pollers"
    assert invalid_reasons(counts) == []  # this machine's own kernel does not count them
    counts.write_text("late 0\n")
    assert invalid_reasons(counts) == []
    counts.write_text("late 3\nfirst 71 7 osu latency\n")
    (reason,) = invalid_reasons(counts)
    assert reason.startswith(
        "programs that poll were shown 3 events late, first osu latency "
        "(process 71, by system call 7)"
    )


def test_threads_that_spin_are_counted_by_what_they_wait_for(tmp_path: Path) -> None:
    counts = tmp_path / "busy_pollers"
    counts.write_text("late 0\nready 61 1000000 71 my loop\ninterrupted 2 32768 80 spin\n")
    ready, interrupted = spinners(counts)
    assert (ready.kind, ready.naps, ready.virtual_ns) == ("ready", 61, 1_000_000)
    assert (ready.pid, ready.program) == (71, "my loop")
    assert interrupted.kind == "interrupted"
    (reason,) = invalid_reasons(counts)
    assert reason.startswith("spin (process 80) computed for 20 s and more")
    assert "interrupted 2 times, to let 33 us pass" in reason

"""The verdict and its arithmetic; needs no root."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from native_fabrics import flat

from emulator.blueprint import Blueprint
from emulator.fidelity.monitor import late_percentile
from emulator.fidelity.sources import (
    CoreTimes,
    PortReading,
    QueueService,
    busiest_share,
    read_cores,
    read_run_delays_ns,
    stolen_share,
)
from emulator.fidelity.thresholds import THRESHOLDS
from emulator.fidelity.verdict import Figures, judge
from emulator.ports import RateOnlyArrangement
from emulator.sysctls import Transport

_CLEAN = Figures(0.1, 0.0, 0, 0, 0.01, 0.01, 60_000, 0)


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
    found = late_percentile(values, 99)
    if len(values) < 2:
        assert found is None
        return
    assert found is not None
    worst = sorted(values)
    assert found <= worst[-2]
    assert sum(value > found for value in values) <= max(1, len(values) // 100)


def test_a_process_that_has_gone_has_no_delays() -> None:
    assert read_run_delays_ns(2**22 + 1) == {}


_CONTEXTS = Blueprint(flat(2, rate="1Gbps"), RateOnlyArrangement(), Transport()).contexts["h0"]
_PORT = _CONTEXTS[0].port.interface


@given(
    dt_ns=st.integers(1_000, 10**8),
    backlog=st.integers(0, 10**8),
    share=st.floats(0, 1),
)
def test_only_ports_that_could_not_run_dry_are_judged(
    dt_ns: int, backlog: int, share: float
) -> None:
    service = QueueService()
    due = dt_ns // 8  # bytes at 1 Gb/s
    before = {_PORT: PortReading(0, 0, 0, backlog)}
    after = {_PORT: PortReading(dt_ns, round(due * share), 0, 0)}
    service.add(_CONTEXTS, before, after, overhead_bytes=24)
    if backlog < dt_ns / 8:
        assert service.lateness is None
    else:
        assert service.lateness is not None
        deviation = (1500 + 14 + 24) / 6**0.5  # of the two readings, in bytes: up to a frame each
        assert service.lateness <= 1 - share + 2 / due
        assert service.lateness >= 1 - share - (3 * deviation + 2) / due


def test_preamble_and_gap_count_as_sent() -> None:
    service = QueueService()
    frames = 1000
    sent = frames * 1514
    dt_ns = frames * (1514 + 24) * 8
    before = {_PORT: PortReading(0, 0, 0, 10**9)}
    after = {_PORT: PortReading(dt_ns, sent, frames, 10**9)}
    service.add(_CONTEXTS, before, after, overhead_bytes=24)
    assert service.lateness == 0


def _watch(pairs: int, rate: float, frames_between: float, random: Random) -> float:
    """Lateness seen by so many pairs of readings, so many frames apart, of a port that has enough
    to send and does so at a share `rate` of its link's rate."""
    service = QueueService()
    dt_ns = round(frames_between * (1514 + 24) * 8)
    for _ in range(pairs):
        phase = random.random()
        sent = int(phase + rate * frames_between)
        before = {_PORT: PortReading(0, 0, 0, 10**9)}
        after = {_PORT: PortReading(dt_ns, sent * 1514, sent, 10**9)}
        service.add(_CONTEXTS, before, after, overhead_bytes=24)
    assert service.lateness is not None
    return service.lateness


@pytest.mark.parametrize("frames_between", [0.3, 1.2, 3.4, 40.7])
@pytest.mark.parametrize("pairs", [3, 14, 200])
def test_that_frames_are_whole_is_no_lateness(pairs: int, frames_between: float) -> None:
    limit = next(limit.limit for limit in THRESHOLDS if limit.name == "queue_lateness")
    random = Random(1)
    blamed = sum(_watch(pairs, 1.0, frames_between, random) > limit for _ in range(500))
    assert blamed <= 5, "one in 700 is what three standard deviations leave"
    if pairs * frames_between > 200:
        assert all(_watch(pairs, 0.5, frames_between, random) > limit for _ in range(50))

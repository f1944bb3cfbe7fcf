"""Runs that measured what cannot be are invalid; those that can be stay as they are."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import floor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.calibration.observations import CalibrationError, observations_of
from analysis.exporters import render_openmetrics
from analysis.predict.models.flow import Flow
from analysis.predict.run_predictions import call_of
from analysis.results.impossible import impossible_times
from analysis.results.result import build_result
from analysis.runs.collectives import MeasuredCollective
from analysis.runs.ingress import Ingress
from analysis.runs.run import Run, load_run
from collectives.kinds import KINDS, least_received_bytes, least_total_bytes
from collectives.schedule.exchange import ExchangeSchedule
from collectives.schedule.gloo import GLOO
from tests.predict.measured_run import write_run
from topologies.spec.spec import parse_spec

_EXCHANGE = "{kind: all_to_all, size: 8MB}"
_STAR = "{kind: flat, hosts: 8, link: {rate: 100Gbps, delay: 0ns, mtu: 9000}}"

_KIND_OPERATIONS = ", ".join(
    f"{{kind: {kind}, size: {size}}}"
    for kind in (
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",
        "gather", "scatter", "send_recv", "incast", "permutation",
    )
    for size in (32, "256KB")
)  # fmt: skip
_FABRICS = (
    "{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4}",
    "{kind: torus, dims: [2, 2, 2]}",
    "{kind: flat, hosts: 8, link: {rate: 800Gbps, delay: 0ns, mtu: 1500}}",
)


@st.composite
def _collectives(draw: st.DrawFn) -> MeasuredCollective:
    kind = draw(st.sampled_from(KINDS))
    ranks = draw(st.integers(2, 9))
    root = draw(st.integers(0, ranks - 1))
    elements = draw(st.integers(1, 100_000))
    if kind in ("all_gather", "all_to_all", "reduce_scatter", "gather", "scatter"):
        elements = -(-elements // ranks) * ranks
    return MeasuredCollective(
        id="i0.c", kind=kind, phase=kind, group="default", tag=0,
        size_bytes=0 if kind == "barrier" else 4 * elements, element_bytes=4, iteration=0,
        ranks=tuple(range(ranks)), root=root,
        degree=draw(st.none() | st.integers(1, ranks - 1)) if kind == "incast" else None,
        peer=(root + draw(st.integers(1, ranks - 1))) % ranks if kind == "send_recv" else None,
        shift=draw(st.none() | st.integers(-20, 20)) if kind == "permutation" else None,
        start_ns=0, end_ns=0, by_rank={},
        schedule=ExchangeSchedule(((0, 1, 4 * elements),)) if kind == "exchange" else GLOO,
    )  # fmt: skip


@given(_collectives())
def test_gloo_moves_at_least_what_any_algorithm_must(collective: MeasuredCollective) -> None:
    received: Counter[int] = Counter()
    for post in call_of(collective).posts():
        heard = post.size_bytes + (collective.kind == "barrier")  # a preamble, if nothing else
        for member, size in zip(post.destination.tolist(), heard.tolist(), strict=True):
            received[member] += size
    for member in range(len(collective.ranks)):
        assert least_received_bytes(collective.shape, member) <= received[member]
    assert least_total_bytes(collective.shape) <= sum(received.values())


@given(
    st.integers(1, 10**8),
    st.integers(1_000, 10**13),
    st.integers(576, 65_535),
    st.integers(40, 80),
)
def test_nothing_comes_sooner_than_frame_after_frame(
    payload: int, rate_bps: int, mtu_bytes: int, headers_bytes: int
) -> None:
    """Whatever the headers, a last frame that is not full, and the time before the first."""
    full, rest = divmod(payload, mtu_bytes - headers_bytes)
    wire_bytes = full * (mtu_bytes + 38) + (rest + headers_bytes + 38 if rest else 0)
    least = Ingress(rate_bps, mtu_bytes).least_ns(payload)
    assert 0 < least <= Fraction(8 * 10**9 * wire_bytes, rate_bps)
    assert Ingress(rate_bps, mtu_bytes, mtu_bytes + 38, 1).least_ns(payload) < least


@pytest.mark.parametrize("fabric", _FABRICS)
def test_what_is_predicted_on_an_idle_fabric_is_possible(fabric: str, tmp_path: Path) -> None:
    write_run(tmp_path, fabric, _KIND_OPERATIONS + ", {kind: barrier}", Flow())
    run = load_run(tmp_path)
    assert impossible_times(run) == ()
    assert build_result(run)["valid"]


@pytest.mark.parametrize("kernel", ["native", "virtual"])
def test_a_collective_that_took_no_time_is_invalid(kernel: str, tmp_path: Path) -> None:
    run = _run(tmp_path, _EXCHANGE, took_ns=0, kernel=kernel)
    result = build_result(run)
    assert not result["valid"]
    (reason,) = result["invalid_reasons"]
    # 7 MB from seven others: 782 packets of at most 8,960 B, with 78 B each to the wire's 100 Gb/s.
    needed = Fraction(7_000_000 + 782 * 78) * 8 / 100
    if kernel == "native":
        needed -= Fraction(9_038 * 8, 100) + 782
    assert f"{floor(needed):,} ns" in reason and "7,000,000 B in 0 ns" in reason
    assert "i0.all_to_all" in reason and "rank 0" in reason and "100Gbps" in reason
    assert "groundwire_valid{" in (text := render_openmetrics(run))
    assert next(ln for ln in text.splitlines() if ln.startswith("groundwire_valid{"))[-2:] == " 0"
    with pytest.raises(CalibrationError, match="not valid"):
        observations_of(run)


@pytest.mark.parametrize(
    ("operation", "wire_bytes"),
    [
        # 14 MB in all to eight hosts, and so to each as much as if it were shared evenly.
        ("{kind: all_reduce, size: 8MB}", 14_000_000 + Fraction(12_500 * 78, 8)),
        ("{kind: broadcast, size: 8MB}", 8_000_000 + 893 * 78),
        ("{kind: incast, size: 1MB}", 7_000_000 + 782 * 78),
        ("{kind: barrier}", 79),
    ],
)
def test_the_bound_is_sharp(operation: str, wire_bytes: Fraction | int, tmp_path: Path) -> None:
    """One nanosecond is the clock's."""
    least = Fraction(wire_bytes) * 8 / 100
    run = _run(tmp_path / "possible", operation, took_ns=floor(least - 1) + 1)
    assert impossible_times(run) == ()
    run = _run(tmp_path / "impossible", operation, took_ns=floor(least - 1))
    assert impossible_times(run)


def test_several_reasons_are_one_and_do_not_hide_the_kernels_own(tmp_path: Path) -> None:
    run = _run(tmp_path, ", ".join([_EXCHANGE] * 5), took_ns=1, reasons=["a core was saturated"])
    first, second = build_result(run)["invalid_reasons"]
    assert first == "a core was saturated"
    assert second.count("received") == 3 and second.endswith("; and 2 more")


def test_a_late_rank_has_its_own_time(tmp_path: Path) -> None:
    """The others were served before it came: what it lacked is all that the last one waits for."""
    run = _run(tmp_path, "{kind: broadcast, size: 8MB}", took_ns=700_000)
    assert impossible_times(run) == ()
    assert impossible_times(_posted_late(run, rank=3, by_ns=100_000)) != ()
    # The root only sends, and the last bytes may wait in its sockets when it goes on.
    assert impossible_times(_posted_late(run, rank=0, by_ns=699_999)) == ()


def test_a_faster_link_in_the_run_counts(tmp_path: Path) -> None:
    run = _run(tmp_path, _EXCHANGE, took_ns=60_000)
    assert len(impossible_times(run)) == 1
    links = [
        {"kind": "rate", "link": f"h{rank}-s0", "at": "0ns", "duration": "1us", "value": "1Tbps"}
        for rank in range(8)
    ]
    spec = parse_spec(json.dumps(run.spec.to_dict() | {"faults": links}))
    assert impossible_times(replace(run, spec=spec)) == ()


def test_a_slowed_run_is_judged_by_its_own_links(tmp_path: Path) -> None:
    run = _run(tmp_path, _EXCHANGE, took_ns=5_600_000)
    slowed = replace(run, environment=run.environment.model_copy(update={"scale": 10}))
    assert impossible_times(run) == ()
    assert "10Gbps" in str(impossible_times(slowed)[0])
    assert "slowed down 10 times" in build_result(slowed)["invalid_reasons"][0]


def test_all_links_of_a_host_may_carry_at_once(tmp_path: Path) -> None:
    """A host of a 2x2x2 torus has three."""
    run = _run(tmp_path, _EXCHANGE, took_ns=200_000, fabric="{kind: torus, dims: [2, 2, 2]}")
    assert impossible_times(run) == ()
    run = _run(tmp_path / "x", _EXCHANGE, took_ns=180_000, fabric="{kind: torus, dims: [2, 2, 2]}")
    assert len(impossible_times(run)) == 1


def test_what_stays_on_a_host_is_not_judged(tmp_path: Path) -> None:
    run = _run(tmp_path, _EXCHANGE, took_ns=0)
    hosts = ["h0"] * len(run.hosts)
    shared = replace(run, environment=run.environment.model_copy(update={"hosts": hosts}))
    assert impossible_times(shared) == ()


class _Takes:
    """A predictor that says the same of everything."""

    name = "takes"
    ignores = "everything"

    def __init__(self, took_ns: int) -> None:
        self._took_ns = took_ns

    def predict(self, setting: object, call: object) -> int:
        return self._took_ns


def _run(
    directory: Path,
    operations: str,
    took_ns: int,
    kernel: str = "virtual",
    reasons: list[str] | None = None,
    fabric: str = _STAR,
) -> Run:
    write_run(directory, fabric, operations, _Takes(took_ns), iterations=1)
    environment = json.loads((directory / "environment.json").read_text())
    verdict = {"valid": not reasons, "reasons": reasons or []}
    environment |= {"kernel": kernel, "verdict": verdict}
    (directory / "environment.json").write_text(json.dumps(environment))
    return load_run(directory)


def _posted_late(run: Run, rank: int, by_ns: int) -> Run:
    (record,) = run.ranks[rank].collectives
    late = record.model_copy(update={"start_ns": record.start_ns + by_ns})
    logs = list(run.ranks)
    logs[rank] = replace(run.ranks[rank], collectives=(late,))
    return replace(run, ranks=tuple(logs))

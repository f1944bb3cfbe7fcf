"""Links that are cut between kernels: they carry what they carry in a kernel alone, to the
nanosecond, and queues at their ends do what they do there."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cut_links
import pytest
from cut_links import LINE_DELAY_NS, LINE_FRAME, LINE_HOPS, LINE_RATE_BPS, LINE_TRAIN, SCENARIOS
from queue_lab import frame_ns

from emulator.virtual.boot import GuestSpec, run_guests
from emulator.virtual.build import ensure_kernel
from emulator.virtual.source import find_source

ROOT = Path(__file__).resolve().parents[2]

QUEUES = [name for name in SCENARIOS if name not in ("line", "round trips")]
SUMS = ("wait_sum_ns", "wait_max_ns", "paused_ns", "class_paused_ns", "backlog_byte_us")

Played = dict[str, dict[str, Any]]


def _play(kernels: int) -> Played:
    """Scenario -> what was found and what ports counted, put together from all kernels."""
    if find_source() is None:
        pytest.skip("the package linux-source-6.12 is not installed")
    lookahead_ns = min(
        cut_links.alternating(scenario.fabric, kernels).lookahead_ns
        for scenario in SCENARIOS.values()
    )
    guest = GuestSpec(
        argv=(sys.executable, str(Path(cut_links.__file__)), *SCENARIOS),
        memory_bytes=600 * 10**6,
        readable=(ROOT,),
        environment={"PYTHONPATH": str(ROOT)},
    )
    # Clocks must agree whatever else differs.
    guests = [replace(guest, memory_bytes=(600 + 100 * i) * 10**6) for i in range(kernels)]
    said: list[str] = []
    played: Played = {name: {"found": {}, "ports": {}} for name in SCENARIOS}
    results = run_guests(
        ensure_kernel(print), guests, lookahead_ns, lambda _, line: said.append(line)
    )
    assert not any(result.failed for result in results), (results, said)
    for line in said:
        part = json.loads(line)
        for key in ("found", "ports"):
            assert not played[part["scenario"]][key].keys() & part[key].keys()
            played[part["scenario"]][key] |= part[key]
    return played


@pytest.fixture(scope="module")
def alone() -> Played:
    return _play(1)


@pytest.fixture(scope="module", params=[2, 3])
def divided(request: pytest.FixtureRequest) -> Played:
    return _play(request.param)


def test_a_train_takes_the_sum_of_serialisation_and_propagation(divided: Played) -> None:
    found = divided["line"]["found"]
    assert [sequence for sequence, _ in found["arrivals"]] == list(range(LINE_TRAIN))
    for sequence, at_ns in found["arrivals"]:
        frames_ns = (sequence + LINE_HOPS) * frame_ns(LINE_FRAME, LINE_RATE_BPS)
        assert 0 <= at_ns - found["sent"] - frames_ns - LINE_HOPS * LINE_DELAY_NS < LINE_HOPS


def test_a_round_trip_takes_twice_that(divided: Played) -> None:
    for took_ns in divided["round trips"]["found"]["round trips"]:
        there_ns = LINE_HOPS * (frame_ns(60, 100_000_000_000) + LINE_DELAY_NS)
        assert 0 <= took_ns - 2 * there_ns < 2 * LINE_HOPS


@pytest.mark.parametrize("scenario", ["line", "round trips"])
def test_hosts_see_what_they_see_in_a_kernel_alone(
    divided: Played, alone: Played, scenario: str
) -> None:
    assert divided[scenario]["found"] == alone[scenario]["found"]


@pytest.mark.parametrize("scenario", QUEUES)
def test_packets_arrive_when_they_do_in_a_kernel_alone(
    divided: Played, alone: Played, scenario: str
) -> None:
    # Two that come to a port in the same nanosecond may change places, so not which it is.
    times = [
        [at_ns for _, at_ns, _ in played[scenario]["found"]["arrivals"]]
        for played in (divided, alone)
    ]
    assert times[0] == times[1]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_ports_count_what_they_do_in_a_kernel_alone(
    divided: Played, alone: Played, scenario: str
) -> None:
    assert divided[scenario]["ports"].keys() == alone[scenario]["ports"].keys()
    for name, port in divided[scenario]["ports"].items():
        same = alone[scenario]["ports"][name]
        for counter in port.keys() - {"observed_ns", *SUMS}:  # since it was made
            assert port[counter] == same[counter], (name, counter)
        # Of packets that come in the nanosecond in which a port becomes free, some wait for it.
        slack_ns = same["tx_packets"]
        assert abs(port["wait_sum_ns"] - same["wait_sum_ns"]) <= slack_ns
        assert abs(port["paused_ns"] - same["paused_ns"]) <= slack_ns
        assert abs(port["backlog_byte_us"] - same["backlog_byte_us"]) * 1000 <= slack_ns * 1514


def test_each_queue_is_put_to_the_test(alone: Played) -> None:
    drops = {
        name: sum(sum(port["drops"].values()) for port in played["ports"].values())
        for name, played in alone.items()
    }
    assert all((drops[name] > 0) == (name in ("droptail", "shared", "voq")) for name in drops), (
        drops
    )
    marks = {name: alone[name]["ports"]["s1:sink"]["ecn_marks"] for name in ("dctcp", "red")}
    assert all(marks.values()), marks
    assert alone["lossless"]["ports"]["s0:s1"]["pauses"] > 0
    assert alone["lossless"]["ports"]["h0:s0"]["pauses"] > 0

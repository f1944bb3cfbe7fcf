"""The predictor `packet` where links go down and come back, beside what the guest measured.

`measured_link_faults.jsonl` has a spec a line, with the run's ports, the time of each of its
collectives in the virtual kernel and how many packets its ports dropped: links between switches and
hosts' own, with and without `reroute`, flaps and partitions; TCP with three congestion controls,
RoCE and MRC; switches that hash, that weigh, that have tables of buckets and that choose packet by
packet.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.predict.interface import PredictorError, Setting
from analysis.predict.models.packet import Packet
from analysis.predict.planned_run import predict_workload
from analysis.predict.setting import setting_of_spec
from topologies.spec.spec import Spec, parse_dict, parse_spec

_LINES = Path(__file__).with_name("measured_link_faults.jsonl").read_text().splitlines()
_RUNS: list[dict[str, Any]] = [json.loads(line) for line in _LINES]


def _parsed(run: dict[str, Any]) -> tuple[Spec, Setting]:
    spec = parse_dict({"name": "measured", **run["spec"]})
    setting = replace(
        setting_of_spec(spec),
        ports={(a, b): (mine, theirs) for a, b, mine, theirs in run["ports"]},
        carrier_ports={(a, b): port for a, b, port in run["carrier_ports"]},
    )
    return spec, setting


@pytest.mark.parametrize("run", _RUNS, ids=lambda run: str(run["name"]))
def test_collectives_take_what_ranks_measured(run: dict[str, Any]) -> None:
    """To the nanosecond, and with as many packets lost."""
    predictor = Packet()
    found = predict_workload(*_parsed(run), predictor)
    assert [one.duration_ns for one in found.collectives.values()] == run["measured_ns"]
    assert predictor.last is not None
    assert int(predictor.last.drops.sum()) == run["drops"]


def test_the_runs_lose_packets_and_wait_for_timers() -> None:
    """So that what the runs hold the predictor to is not nothing."""
    assert sum(run["drops"] > 0 for run in _RUNS) >= 10
    assert sum(max(run["measured_ns"]) > 1_000_000_000 for run in _RUNS) >= 2


def test_the_runs_tell_tables_of_buckets_from_thresholds() -> None:
    """Else the routes of resilient groups would not matter."""
    for run in _RUNS:
        if _parsed(run)[1].routes.groups is None:
            continue
        plain = json.loads(json.dumps(run))
        del plain["spec"]["fabric"]["routing"]["resilient"]
        found = predict_workload(*_parsed(plain), Packet())
        assert [one.duration_ns for one in found.collectives.values()] != run["measured_ns"]


_SPEC = """
name: down
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2,
  link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}}, routing: {routing}}}
transport: {{kind: {transport}}}
workload: {{kind: collectives, ranks: 4, iterations: 2,
  operations: [{{kind: all_to_all, size: 4MB}}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}}}
faults: [{fault}]
"""


def _spec(fault: str, routing: str = "ecmp", transport: str = "roce, path_mtu: 4096") -> Spec:
    return parse_spec(_SPEC.format(fault=fault, routing=routing, transport=transport))


@pytest.mark.parametrize("routing", ["ecmp", "static", "{kind: spray, choose: round-robin}"])
def test_nothing_goes_over_a_link_that_is_down_from_the_start(routing: str) -> None:
    spec = _spec("{kind: link-down, link: leaf0-spine0, at: 0s}", routing)
    predictor = Packet()
    took = predict_workload(spec, setting_of_spec(spec), predictor).iterations
    assert predictor.last is not None
    (link,) = (
        one.index
        for one in spec.plan.fabric.links
        if {one.a.node, one.b.node} == {"leaf0", "spine0"}
    )
    passed = predictor.last.columns["port.packets"]
    data = 4 * 4_000_000 // 4 * 2 // 4096  # of both iterations, across the spines
    assert passed[2 * link] + passed[2 * link + 1] < 0.01 * data
    assert predictor.last.drops.sum() == 0
    calm = spec.with_overrides({"faults": "[]"})
    free = predict_workload(calm, setting_of_spec(calm), Packet()).iterations
    assert all(one.duration_ns >= whole.duration_ns for one, whole in zip(took, free, strict=True))


_IN_USE = "{kind: ecmp, resilient: {idle_timer: 120s}}"


def test_buckets_that_stay_in_use_are_followed_where_none_has_too_many() -> None:
    """A link that goes down for good moves those of its own alone, whatever the timer; one that
    comes back is given idle ones, of which only the kernel knows."""
    took = []
    for routing in (_IN_USE, "{kind: ecmp, resilient: true}"):
        spec = _spec("{kind: link-down, link: leaf0-spine0, at: 20us}", routing)
        found = predict_workload(spec, setting_of_spec(spec), Packet())
        took.append([one.duration_ns for one in found.iterations])
    assert took[0] == took[1]
    spec = _spec("{kind: link-down, link: leaf0-spine0, at: 20us, duration: 20us}", _IN_USE)
    with pytest.raises(PredictorError, match="resilient groups whose idle_timer is not 0"):
        predict_workload(spec, setting_of_spec(spec), Packet())


def test_routes_that_follow_late_lose_what_the_link_would_have_carried() -> None:
    """The longer the link is sent into until then, the more is lost."""
    lost = []
    for reroute in ("0s", "20us", "60us"):
        spec = _spec(
            f"{{kind: link-down, link: leaf0-spine0, at: 50us, reroute: {reroute}}}",
            "{kind: spray, choose: round-robin}",
            "roce, path_mtu: 4096, loss_recovery: selective-repeat",
        )
        predictor = Packet()
        predict_workload(spec, setting_of_spec(spec), predictor)
        assert predictor.last is not None
        lost.append(int(predictor.last.drops.sum()))
    assert lost[0] < lost[1] < lost[2]


def test_a_flap_without_an_end_goes_on_as_one_that_lasts() -> None:
    """It ends with the run. The second iteration is some hundred times later."""
    took = []
    for lasts in ("", ", duration: 1s"):
        flap = "kind: flap, link: leaf0-spine0, at: 33us, every: 90500ns, down: 20us, reroute: 7us"
        spec = _spec(f"{{{flap}{lasts}}}", transport="tcp")
        predictor = Packet()
        found = predict_workload(spec, setting_of_spec(spec), predictor)
        assert predictor.last is not None
        took.append([one.duration_ns for one in found.iterations])
    assert took[0] == took[1]
    assert len(set(took[0])) == 2  # it meets both iterations, each at another place


@pytest.mark.parametrize("reroute", ["0s", "10ms"])
def test_a_host_that_is_cut_off_for_good_ends_its_connections(reroute: str) -> None:
    """As Linux does after 15 retransmissions, a quarter of an hour."""
    spec = _spec(
        f"{{kind: link-down, link: h0-leaf0, at: 50us, reroute: {reroute}}}", "ecmp", "tcp"
    )
    with pytest.raises(PredictorError, match="after 15 retransmissions"):
        predict_workload(spec, setting_of_spec(spec), Packet())


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (
            "{kind: link-down, link: h0-leaf0, iteration: 0, duration: 1us}, "
            "{kind: link-down, link: h1-leaf0, iteration: 1, duration: 1us}",
            "go down in several iterations",
        ),
        ("{kind: link-down, link: h0-leaf0, at: 10us, reroute: 1ms}", "its link is down"),
        ("{kind: kill, rank: 1, at: 10us}", "whose ranks are killed"),
        ("{kind: link-down, link: h0-leaf0, at: 10us}", "no route for a packet of a queue pair"),
    ],
)
def test_what_is_not_followed_is_refused_by_name(fault: str, named: str) -> None:
    """A queue pair whose own host cannot send ends its run, and the prediction."""
    spec = _spec(fault)
    with pytest.raises(PredictorError, match=named):
        predict_workload(spec, setting_of_spec(spec), Packet())

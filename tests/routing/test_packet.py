"""The predictor `packet` where switches choose by more than a hash, and what went where."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.predict.engines.paths import Paths
from analysis.predict.interface import PredictorError
from analysis.predict.models.flow import Flow, FlowIdealEcmp
from analysis.predict.models.packet import Packet
from analysis.predict.planned_run import predict_workload
from analysis.predict.setting import setting_of_spec
from topologies.spec.spec import Spec, parse_dict, parse_spec

_LINES = Path(__file__).with_name("roce_reference.jsonl").read_text().splitlines()
_RUNS: list[dict[str, Any]] = [json.loads(line) for line in _LINES]


def _name(run: dict[str, Any]) -> str:
    routing = run["spec"]["fabric"]["routing"]
    recovery = run["spec"]["transport"].get("loss_recovery", "go-back-n")
    return f"{routing['kind']}-{routing.get('choose', 'own')}-{recovery}"


@pytest.mark.parametrize("run", _RUNS, ids=_name)
def test_collectives_take_what_ranks_measured(run: dict[str, Any]) -> None:
    """Runs of the virtual kernel: an all-to-all over RoCE, of 8 ranks on two leaves and two spines.
    Its choices are the run's own, as a switch begins anew where it has rested; where ranks' threads
    go on at the same moment, two packets may change places."""
    spec = parse_dict({"name": "run", **run["spec"]})
    setting = replace(
        setting_of_spec(spec),
        ports={(a, b): (mine, theirs) for a, b, mine, theirs in run["ports"]},
        carrier_ports={(a, b): port for a, b, port in run["roce_ports"]},
    )
    found = predict_workload(spec, setting, Packet())
    predicted = [one.duration_ns for one in found.collectives.values()]
    assert predicted == pytest.approx(run["measured_ns"], rel=2e-3, abs=1)


_SPEC = """
name: shares
fabric: {{kind: leaf-spine, leaves: 2, spines: {spines}, hosts_per_leaf: {hosts},
  link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}}, links: {{leaf-spine: {{rate: {rate}}}}},
  routing: {routing}}}
transport: {{kind: roce, path_mtu: 4096}}
workload: {{kind: collectives, ranks: {ranks}, operations: [{{kind: {kind}, size: 4MB}}]}}
collectives:
  backend: programs
  all_to_all: {{algorithm: direct}}
  broadcast: {{algorithm: tree}}
"""


def _spec(
    routing: str,
    *,
    spines: int = 2,
    hosts: int = 2,
    rate: str = "100Gbps",
    kind: str = "all_to_all",
) -> Spec:
    return parse_spec(
        _SPEC.format(
            routing=routing, spines=spines, hosts=hosts, rate=rate, ranks=2 * hosts, kind=kind
        )
    )


def _uplinks(spec: Spec) -> tuple[list[int], Packet]:
    """Packets that the first leaf sent to each spine."""
    predictor = Packet()
    predict_workload(spec, setting_of_spec(spec), predictor)
    assert predictor.last is not None
    passed = predictor.last.columns["port.packets"]
    links = [link for link in spec.plan.fabric.links if link.link_class == "leaf-spine"]
    ends = [(link.index, link.a.node) for link in links if "leaf0" in (link.a.node, link.b.node)]
    return [int(passed[2 * index + (node != "leaf0")]) for index, node in ends], predictor


@pytest.mark.parametrize("spines", [2, 3, 4])
def test_round_robin_gives_equal_paths_equal_packets(spines: int) -> None:
    up, _ = _uplinks(_spec("{kind: spray, choose: round-robin}", spines=spines))
    assert max(up) - min(up) <= 3  # it begins anew when ranks have met, and when they part


def test_a_spray_of_two_equal_paths_has_all_of_both() -> None:
    """One flow over two uplinks of half the rate takes what it takes over one whole uplink,
    but for two frames of a path that are stored at half the rate, 0.34 us each."""
    took = []
    for routing, rate, spines in (
        ("{kind: spray, choose: round-robin}", "50Gbps", 2),
        ("ecmp", "100Gbps", 1),
    ):
        spec = _spec(routing, rate=rate, spines=spines, hosts=1, kind="broadcast")
        found = predict_workload(spec, setting_of_spec(spec), Packet())
        took.append(next(iter(found.collectives.values())).duration_ns)
    assert 0 <= took[0] - took[1] <= 4 * 340


def test_static_paths_are_those_of_the_routes() -> None:
    text = _SPEC.format(
        routing="static", spines=2, hosts=4, rate="100Gbps", ranks=8, kind="all_to_all"
    )
    setting = setting_of_spec(parse_spec(text))
    pairs = [(a, b) for a in range(8) for b in range(8) if a != b]
    sources, destinations = zip(*pairs, strict=True)
    rows = Paths(setting).follow(sources, destinations).tolist()
    for (a, b), row in zip(pairs, rows, strict=True):
        (path,) = setting.routes.paths(setting.hosts[a], setting.hosts[b])
        links = 2 * len(setting.fabric.links)
        assert [each // 2 for each in row if each < links] == [hop.link for hop in path]


def test_what_gives_a_pair_one_path_is_refused_by_name() -> None:
    spec = _spec("spray")
    with pytest.raises(PredictorError, match="routing spray several"):
        predict_workload(spec, setting_of_spec(spec), Flow())
    predict_workload(spec, setting_of_spec(spec), FlowIdealEcmp())

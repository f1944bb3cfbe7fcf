"""ASTRA-sim's model as a predictor: the right network for the fabric, the right collective."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.predict.interface import PredictorError, Setting, load_predictor
from analysis.predict.models.astra import AstraAnalytical
from collectives.call import CollectiveCall
from topologies.fabrics.build import build_fabric
from topologies.routing.routes import compute_routes
from topologies.spec.fabric_section import FatTreeSpec, FlatSpec, LinkSpec, TorusSpec

LINK = LinkSpec.model_validate({"rate": "100Gbps", "delay": "500ns"})
BYTES_PER_NS = 100 / 8


def setting(section: FlatSpec | TorusSpec | FatTreeSpec) -> Setting:
    fabric = build_fabric(section)
    hosts = tuple(host.name for host in fabric.hosts)
    return Setting(fabric, compute_routes(fabric), hosts)


FLAT = setting(FlatSpec(kind="flat", hosts=8, link=LINK))
TORUS = setting(TorusSpec(kind="torus", dims=(4, 3), link=LINK, routing="dimension-order"))
FAT_TREE = setting(FatTreeSpec(kind="fat-tree", k=4, link=LINK))


def call(kind: str, size_bytes: int, ranks: int, **fields: Any) -> CollectiveCall:
    return CollectiveCall(kind, size_bytes, tuple(range(ranks)), **fields)


@pytest.mark.parametrize(
    ("kind", "steps"), [("all_reduce", 14), ("reduce_scatter", 7), ("all_gather", 7)]
)
def test_rings_on_one_switch(kind: str, steps: int) -> None:
    """Every step carries an eighth over two hops; a packet crosses the end hosts once more."""
    size = 8 << 20
    step = int(2 * 500 + (size / 8) / BYTES_PER_NS)
    assert AstraAnalytical().predict(FLAT, call(kind, size, 8)) == steps * (step + 1) + 1


def test_all_to_all_is_one_round_when_nothing_contends() -> None:
    size = 8 << 20
    way = int(2 * 500 + (size / 8) / BYTES_PER_NS)
    unaware = AstraAnalytical(backend="unaware")
    assert unaware.predict(FLAT, call("all_to_all", size, 8)) == way + 2
    contended = AstraAnalytical().predict(FLAT, call("all_to_all", size, 8))
    # Seven messages leave each port one after the other, then one more hop.
    serialisation = int((size / 8) / BYTES_PER_NS)
    arrival = int(500 + (size / 8) / BYTES_PER_NS)
    assert contended == 6 * serialisation + 2 * arrival + 2


@pytest.mark.parametrize("fabric", [FLAT, TORUS, FAT_TREE], ids=["flat", "torus", "fat-tree"])
def test_what_a_rank_sends_passes_its_port(fabric: Setting) -> None:
    """Seen from one port: a ring's chunks, or everything for the peers, one after the other. A
    torus's host has four ports, of which an all-to-all over a Switch is held to one."""
    ranks, size = len(fabric.hosts), 8 << 20
    once = (ranks - 1) / ranks * size / BYTES_PER_NS
    for kind, times in (("all_reduce", 2), ("all_gather", 1), ("all_to_all", 1)):
        took = AstraAnalytical().predict(fabric, call(kind, size, ranks))
        # One chunk more is stored in the Switch; 3000 ns are more than any path is long.
        most = times * once + size / ranks / BYTES_PER_NS + times * ranks * 3000
        # A torus reduces along two axes, in 2 * (3 - 1)/3 and 2 * (4 - 1)/4/3 of the size.
        assert 0.99 * times * once <= took <= most, kind


def test_the_backend_suits_the_collective() -> None:
    for kind, backend in (("all_reduce", "unaware"), ("all_to_all", "aware")):
        collective = call(kind, 1 << 20, 8)
        assert AstraAnalytical().simulation(FLAT, collective).backend == backend
        told = AstraAnalytical(backend=backend).predict(FLAT, collective)
        assert AstraAnalytical().predict(FLAT, collective) == told
    # Whole chunks wait in the Switch: a step of a ring crosses two links one after the other.
    ring = call("all_reduce", 1 << 26, 8)
    stored = AstraAnalytical(backend="aware").predict(FLAT, ring)
    assert stored == pytest.approx(2 * AstraAnalytical().predict(FLAT, ring), rel=0.01)


def test_a_fat_trees_latency_is_its_paths_mean() -> None:
    """Neighbours of a k=4 fat-tree in rank order: 8 share an edge, 4 a pod, 4 only the core."""
    simulation = AstraAnalytical().simulation(FAT_TREE, call("all_reduce", 1 << 20, 16))
    (dimension,) = simulation.network.dimensions
    assert (dimension.topology, dimension.npus) == ("Switch", 16)
    mean_hops = (8 * 2 + 4 * 4 + 4 * 6) / 16
    assert dimension.latency_ns == pytest.approx(500 * mean_hops / 2)
    assert dimension.bytes_per_ns == pytest.approx(BYTES_PER_NS)


def test_a_torus_becomes_rings_innermost_first() -> None:
    simulation = AstraAnalytical().simulation(TORUS, call("all_reduce", 1 << 20, 12))
    shape = [(d.topology, d.npus, d.latency_ns) for d in simulation.network.dimensions]
    assert shape == [("Ring", 3, 500.0), ("Ring", 4, 500.0)]
    # Part of it, or another order, is no torus any more.
    part = AstraAnalytical().simulation(TORUS, call("all_reduce", 1 << 20, 6))
    assert [d.topology for d in part.network.dimensions] == ["Switch"]
    # ASTRA-sim's aware backend has one dimension.
    exchange = AstraAnalytical().simulation(TORUS, call("all_to_all", 1 << 20, 12))
    assert [(d.topology, d.npus) for d in exchange.network.dimensions] == [("Switch", 12)]
    ignorant = AstraAnalytical(backend="unaware")
    apart = ignorant.simulation(TORUS, call("all_to_all", 1 << 20, 12))
    assert apart.network == simulation.network


@settings(deadline=None, max_examples=30)
@given(
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
    size=st.integers(8, 1 << 26),
    efficiency=st.floats(0.2, 1.0),
    hop=st.floats(0, 5000),
    message=st.floats(1, 5000),
)
def test_overheads_never_help(
    kind: str, size: int, efficiency: float, hop: float, message: float
) -> None:
    ideal = AstraAnalytical().predict(FLAT, call(kind, size, 8))
    real = AstraAnalytical(
        bandwidth_efficiency=efficiency, hop_overhead_ns=hop, message_overhead_ns=message
    ).predict(FLAT, call(kind, size, 8))
    assert real >= ideal


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all"])
def test_fits_see_finer_steps_of_the_same_model(kind: str) -> None:
    collective = call(kind, 12_345_678, 8)
    whole = AstraAnalytical(message_overhead_ns=40.0).predict(FLAT, collective)
    fine = AstraAnalytical(message_overhead_ns=40.0).duration_ns(FLAT, collective)
    assert fine == pytest.approx(whole, abs=15)
    assert AstraAnalytical(message_overhead_ns=40.01).duration_ns(FLAT, collective) > fine


def test_nothing_takes_no_time() -> None:
    assert AstraAnalytical().predict(FLAT, call("all_reduce", 0, 8)) == 0
    assert AstraAnalytical().predict(FLAT, call("all_reduce", 64, 1)) == 0


def test_what_it_cannot_say_is_refused() -> None:
    with pytest.raises(PredictorError, match="ASTRA-sim has no broadcast"):
        AstraAnalytical().predict(FLAT, call("broadcast", 64, 8))
    with pytest.raises(PredictorError, match="backend: found 'fluid'"):
        load_predictor("astra-analytical", {"backend": "fluid"})
    with pytest.raises(PredictorError, match="splits: found 0"):
        AstraAnalytical(splits=0)
    with pytest.raises(PredictorError, match="has no congestion_factor"):
        AstraAnalytical(congestion_factor=2.0)


def test_it_is_known_by_its_name() -> None:
    predictor = load_predictor("astra-analytical", {"splits": 4})
    assert predictor.predict(FLAT, call("all_reduce", 1 << 20, 8)) > 0

"""COMET's way: rooflines, footprints, exposed communication, and what memory expansion moves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.design.comparison import by_tensor, clusters
from analysis.design.models.demand import Demand, Traffic, Window
from analysis.design.models.footprint import state_bytes_per_parameter
from analysis.design.models.host import Host, Kernel
from analysis.design.models.recommender import mlp_shapes, work_of_recommender
from analysis.design.models.transformer import (
    footprint_parts,
    layer_kernels,
    parameters,
    work_of_transformer,
)
from analysis.design.network import Dimension, buffer_utilisation
from analysis.design.point import Strategy
from analysis.design.search import Found, search
from analysis.design.sensitivity import memory_steps
from tests.design.design_files import found_in
from topologies.spec.design.document import load_design
from topologies.spec.design.models import RecommenderModel, TransformerModel

READY = Path(__file__).resolve().parents[2] / "topologies" / "designs"
_ONE_T = TransformerModel(kind="transformer")
_A100 = Host(312_000.0, 80e9, 2039.0)
_DGX = (
    Dimension("server", "fully-connected", 8, 300.0, 300.0),
    Dimension("fabric", "switch", 128, 25.0, 25.0),
)


@pytest.fixture(scope="module")
def transformer() -> Found:
    return search(load_design(READY / "comet-transformer.yaml"))


def test_zero_s_bytes() -> None:
    assert [state_bytes_per_parameter(stage, 1) for stage in range(4)] == [16.0] * 4
    assert [state_bytes_per_parameter(stage, 64) for stage in range(4)] == [
        16.0,
        4 + 12 / 64,
        2 + 14 / 64,
        16 / 64,
    ]


def test_transformer_1t_has_a_trillion_parameters() -> None:
    assert parameters(_ONE_T) == pytest.approx(1.008e12, rel=1e-3)


def test_the_arithmetic_is_that_of_megatron() -> None:
    # 24 s h^2 + 4 s^2 h for each sample and layer: Narayanan et al., SC 2021, section 5.1.
    s, h = _ONE_T.sequence, _ONE_T.hidden
    kernels = layer_kernels(_ONE_T, 1, 8)
    total = sum(kernel.flops * kernel.times for kernel in kernels)
    assert total == pytest.approx((24 * s * h * h + 4 * s * s * h) / 8)


@given(
    st.floats(1, 1e15), st.floats(1, 1e12), st.floats(0, 400e9), st.floats(1, 2000), st.floats(0, 5)
)
def test_a_kernel_takes_its_longer_part(
    flops: float, touched: float, footprint: float, second: float, share: float
) -> None:
    host = Host(1e5, 80e9, 2000.0, 320e9, second)
    took = Kernel(flops, touched).time_ns(host, footprint)
    assert took >= flops / 1e5 and took >= touched / 2000 * (1 - 1e-9)
    assert took <= max(flops / 1e5, touched / second) * (1 + 1e-9)
    assert host.bytes_per_ns(footprint * (1 + share)) <= host.bytes_per_ns(footprint) * (1 + 1e-9)


def test_half_in_each_tier_is_their_harmonic_mean() -> None:
    host = Host(1.0, 100.0, 2000.0, 100.0, 500.0)
    assert host.bytes_per_ns(200.0) == pytest.approx(2 / (1 / 2000 + 1 / 500))
    assert host.bytes_per_ns(100.0) == 2000.0


def test_more_tensor_parallelism_takes_less_memory_and_more_messages() -> None:
    footprints, exchanged = [], []
    for tensor in (1, 2, 8, 64, 1024):
        strategy = Strategy(1024 // tensor, tensor, microbatches=1, zero=2)
        work = work_of_transformer(_ONE_T, strategy, _A100, _DGX)
        assert work is not None
        footprints.append(dict(footprint_parts(_ONE_T, strategy))["model states"])
        sent = [sum(t.bytes_by_dimension) for t in work.demand.traffic if t.name == "tensor"]
        exchanged.append(sum(sent))
    assert footprints == sorted(footprints, reverse=True)
    assert exchanged == sorted(exchanged) and exchanged[0] == 0


def test_traffic_is_hidden_as_far_as_its_window_goes() -> None:
    one = Traffic("data", (100.0,), window=0)
    windows = (Window(30.0, "backward"),)
    assert Demand(50.0, (one,), windows).time_ns([1.0]) == 50 + 70
    assert Demand(50.0, (one,), windows).time_ns([10.0]) == 50
    assert Demand(50.0, (Traffic("tensor", (100.0,)),)).time_ns([10.0]) == 60


def test_what_hides_behind_the_same_computation_shares_the_network() -> None:
    exchange, gradients = Traffic("exchange", (40.0,), window=0), Traffic("data", (80.0,), window=1)
    inside = (Window(30.0, "backward"), Window(100.0, "backward"))
    # Each by itself would leave 10 of the exchange; together they leave 20 behind all of it.
    assert Demand(100.0, (exchange, gradients), inside).exposed_ns([1.0]) == 20
    apart = (Window(30.0, "forward"), Window(100.0, "backward"))
    assert Demand(100.0, (exchange, gradients), apart).exposed_ns([1.0]) == 10
    # The collective that is posted last has its own window alone, however much was hidden before.
    assert Demand(100.0, (exchange, gradients), inside).exposed_ns([2.0]) == 0
    late = replace(exchange, bytes_by_dimension=(90.0,))
    assert Demand(100.0, (late, replace(gradients, times=0.25)), inside).exposed_ns([1.0]) == 60


def test_the_dlrm_is_that_of_hot_interconnects() -> None:
    model = RecommenderModel(kind="recommender")
    bottom, top = mlp_shapes(model)
    # LIBRA's DLRM.txt: gradients of 114,823,168 bytes, an AlltoAll of 4,194,304, 979.8 us for a
    # pass of the MLPs at 60 TFLOPS, look-ups of 419,431 ns at 600 GB/s.
    assert 2 * sum(inputs * outputs for inputs, outputs in (*bottom, *top)) == 114_823_168
    host = Host(60_000.0, 1e15, 1e9)
    flat = (Dimension("all", "switch", 128, 12.5, 12.5),)
    work = work_of_recommender(model, host, flat)
    assert work is not None
    sent: dict[str, float] = {}
    for one in work.demand.traffic:
        sent[one.name] = sent.get(one.name, 0.0) + one.bytes_by_dimension[0]
    assert sent["exchange"] == pytest.approx(4_194_304 * 127 / 128)
    assert sent["data"] == pytest.approx(2 * 114_823_168 * 127 / 128)
    assert work.demand.compute_ns == pytest.approx(3 * 979_800, rel=1e-3)
    slow = work_of_recommender(model, Host(1e12, 1e15, 600.0), flat)
    assert slow is not None
    assert slow.demand.compute_ns >= 3 * 419_431


def test_memory_excludes_small_degrees_and_expansion_moves_the_optimum(transformer: Found) -> None:
    lines = by_tensor(transformer)
    none = lines["fabric links 2, expansion 0B"]
    assert min(none) == 64  # 32 hosts of 80 GB do not hold the states of a 32nd
    best = {}
    for size in ("0B", "80GB", "240GB", "480GB", "1000GB", "2000GB"):
        fast = ", expansion bandwidth 500GB/s" if size != "0B" else ""
        name = f"fabric links 2, expansion {size.replace('000GB', 'TB')}{fast}"
        line = lines.get(name) or lines[name.replace("TB", "000GB")]
        best[size] = min(line.values(), key=lambda s: s.time_ns)
    degrees = [s.point.strategy.tensor for s in best.values() if s.point.strategy]
    assert degrees == [64, 16, 8, 4, 2, 1]
    times = [s.time_ns for s in best.values()]
    assert times == sorted(times, reverse=True)
    # A second tier that is too slow moves nothing.
    slow = lines["fabric links 2, expansion 80GB, expansion bandwidth 50GB/s"]
    best_slow = min(slow.values(), key=lambda s: s.time_ns)
    assert best_slow.time_ns == pytest.approx(best["0B"].time_ns)


def test_clusters_are_ranked_by_their_best_strategy(transformer: Found) -> None:
    rows = clusters(transformer)
    times = [row.best.time_ns for row in rows]
    assert len(rows) == 33 and times == sorted(times)
    assert transformer.best is rows[0].best
    assert times[-1] / times[0] > 2


def test_what_more_memory_would_be_worth() -> None:
    text = (READY / "comet-transformer.yaml").read_text()
    text = text.replace("[0, 80GB, 240GB, 480GB, 1000GB, 2000GB]", "0")
    found = found_in(text.replace("[1, 2, 4], link", "2, link"))
    steps = memory_steps(found)
    host = found.best.point.host
    assert steps and host is not None
    assert all(step.footprint_bytes > host.capacity_bytes for step in steps)
    times = [found.best.time_ns, *(step.time_ns for step in steps)]
    assert times == sorted(times, reverse=True)
    assert steps[0].words.startswith("tensor 32")


def test_a_pipeline_has_its_bubble() -> None:
    many = Strategy(16, 8, 8, 64)
    one = Strategy(16, 8, 8, 1)
    works = [work_of_transformer(_ONE_T, strategy, _A100, _DGX) for strategy in (many, one)]
    assert all(work is not None for work in works)
    times = [work.demand.compute_ns for work in works if work is not None]
    # 1 microbatch of 64 samples passes 8 stages alone; 64 of 1 fill them.
    assert times[1] / times[0] == pytest.approx(8 * 64 / (64 + 7), rel=0.05)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_larger_buffer_uses_more_of_the_link(one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert 0.75 <= buffer_utilisation(small) <= buffer_utilisation(large) + 1e-12
    assert buffer_utilisation(0) == pytest.approx(0.75)
    assert buffer_utilisation(1) == buffer_utilisation(3) == 1


def test_links_and_buffers_are_chosen_with_their_prices() -> None:
    found = found_in("""
workload: {kind: collectives, ranks: 8, operations: [{kind: all_reduce, size: 64MB}]}
design:
  objective: time-x-cost
  dimensions:
    - {name: a, kind: switch, size: 8, links: [1, 2, 4], link_bandwidth: 10GB/s,
       buffer: [10KB, 100KB, 400KB], round_trip: 10us}
  prices: {buffer_mb: 1, host: 500}
""")
    assert found.points == 9
    assert found.best.point.chosen == {"a links": "4", "a buffer": "400KB"}
    used = found.best.point.dimensions[0].used
    assert used == pytest.approx(1.0)
    sent = 2 * 64e6 * 7 / 8
    assert found.best.time_ns == pytest.approx(sent / 40)
    assert found.best.cost == pytest.approx(8 * (500 + 0.4 + 40 * 17))

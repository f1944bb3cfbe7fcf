"""Iterations as tables of layers: what they ask for is what the model counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.design.models.host import Host
from analysis.design.models.iteration_table import PASSES
from analysis.design.models.listed_work import work_of_layers
from analysis.design.models.messages import split_degrees
from analysis.design.models.recommender import work_of_recommender
from analysis.design.models.tables import (
    table_of_layers,
    table_of_recommender,
    table_of_transformer,
)
from analysis.design.models.transformer import work_of_transformer
from analysis.design.network import Dimension
from analysis.design.point import Point, Strategy
from groundwire.designs.emulated_network import (
    Part,
    degrees_of,
    dimension_fabric,
    parts_of,
    shrunk_alike,
)
from groundwire.designs.emulated_workload import Scale, emulated_workload
from topologies.spec.design.models import RecommenderModel, TransformerModel
from topologies.spec.layers_section import LayersWorkload
from workloads.models.build import step_of
from workloads.models.step import Pause, StartCollective, StartMessage

_HOST = Host(312_000.0, 1e15, 2039.0)
_SIZES = (4, 8, 4)
_TRANSFORMER = TransformerModel(
    kind="transformer", layers=16, hidden=8192, heads=64, batch_size=512
)


@dataclass
class _Sections:
    """As much of a design's sections as says what is emulated."""

    workload: TransformerModel


def _dimensions(sizes: tuple[int, ...] = _SIZES) -> tuple[Dimension, ...]:
    return tuple(Dimension(f"d{i}", "ring", size, 10.0, 10.0) for i, size in enumerate(sizes))


def _layers(parallelism: str, **keys: object) -> LayersWorkload:
    part = {"compute": "3us", "collective": "all_reduce", "size": "1MB"}
    gather = {"compute": "2us", "collective": "all_gather", "size": "10KB"}
    layers = [
        {"name": "a", "forward": part, "input_gradient": gather, "update": "1us"},
        {"name": "b", "forward": part, "input_gradient": part, "weight_gradient": part},
        {"name": "c", "weight_gradient": {"compute": "5us"}},
    ]
    return LayersWorkload.model_validate(
        {"kind": "layers", "ranks": 128, "parallelism": parallelism, "layers": layers, **keys}
    )


@pytest.mark.parametrize(
    "workload",
    [
        _layers("hybrid-data-model", innermost=16),
        _layers("hybrid-model-data", innermost=32, passes=3),
        _layers("hybrid-dlrm", last_bottom_layer=1),
        _layers("data"),
        _layers("model"),
    ],
    ids=lambda one: one.parallelism,
)
@given(st.lists(st.floats(0.1, 1000), min_size=3, max_size=3))
@settings(max_examples=10)
def test_layers_are_joined_without_loss(workload: LayersWorkload, rates: list[float]) -> None:
    dimensions = _dimensions()
    work = work_of_layers(workload, dimensions)
    assert work is not None
    table = table_of_layers(workload, Point(dimensions))
    assert not table.overlap
    demand = table.demand(table.degrees, dimensions)
    assert demand.time_ns(rates) == pytest.approx(work.demand.time_ns(rates), rel=1e-9)


def _strategies() -> st.SearchStrategy[Strategy]:
    """Strategies of 128 ranks."""
    return st.builds(
        lambda tensor, pipeline, micro, zero: Strategy(
            128 // (tensor * pipeline), tensor, pipeline, micro, zero
        ),
        st.sampled_from((1, 4, 8, 32)),
        st.sampled_from((1, 2, 4)),
        st.sampled_from((1, 4)),
        st.integers(0, 3),
    )


@given(_strategies())
@settings(max_examples=40, deadline=None)
def test_a_transformer_s_table_is_its_iteration(strategy: Strategy) -> None:
    dimensions = _dimensions()
    work = work_of_transformer(_TRANSFORMER, strategy, _HOST, dimensions)
    assert work is not None
    table = table_of_transformer(_TRANSFORMER, Point(dimensions, _HOST, strategy))
    demand = table.demand(table.degrees, dimensions)
    assert demand.compute_ns == pytest.approx(work.demand.compute_ns)
    rates = (300.0, 25.0, 5.0)
    assert demand.communication_ns(rates) == pytest.approx(work.demand.communication_ns(rates))
    # The last row is exposed: of 4 rows a quarter, and of 16 layers less.
    later = demand.time_ns(rates) - work.demand.time_ns(rates)
    assert -1e-9 * demand.time_ns(rates) <= later <= demand.communication_ns(rates) / 4


def test_more_microbatches_than_are_run_one_by_one_are_joined() -> None:
    strategy = Strategy(32, 1, 4, 16, 3)
    dimensions = _dimensions()
    work = work_of_transformer(_TRANSFORMER, strategy, _HOST, dimensions)
    assert work is not None
    table = table_of_transformer(_TRANSFORMER, Point(dimensions, _HOST, strategy))
    assert table.microbatches == 8
    # 8 of two microbatches each: 8 + 3 rounds of twice the length for 16 + 3.
    demand = table.demand(table.degrees, dimensions)
    rounds = demand.compute_ns / work.demand.compute_ns
    assert rounds == pytest.approx(2 * (8 + 3) / (16 + 3), rel=0.01)


@given(_strategies())
@settings(max_examples=40, deadline=None)
def test_ranks_do_all_that_a_transformer_s_table_says(strategy: Strategy) -> None:
    dimensions = _dimensions()
    sections = _Sections(_TRANSFORMER)
    point = Point(dimensions, _HOST, strategy)
    iteration = emulated_workload(sections, point)  # type: ignore[arg-type]
    workload = LayersWorkload.model_validate(
        iteration.section(parts_of(iteration.degrees), Scale(1e-3, 1.0))
    )
    table = table_of_transformer(_TRANSFORMER, point)
    told = {"computed": 0.0, "model": 0.0, "data": 0.0}
    for row in table.rows:
        told["computed"] += row.update_ns
        told["data"] += 1e-3 * 2 * table.microbatches * row.parameter_bytes
        for name in PASSES:
            one = row.of(name)
            told["computed"] += table.microbatches * one.compute_ns
            reduces = name == "weight_gradient"
            times = 1 if reduces else table.microbatches
            told["data" if reduces else "model"] += 1e-3 * times * one.size_bytes
    if strategy.tensor == 1:
        told["model"] = 0.0
    if strategy.data == 1:
        told["data"] = 0.0
    found = dict.fromkeys(told, 0.0)
    messages = 0
    for action in step_of(workload, 0):
        match action:
            case Pause():
                found["computed"] += action.duration_ns
            case StartCollective():
                found[action.group] += 2 * action.elements
            case StartMessage():
                messages += 1
                assert 2 * action.elements == pytest.approx(1e-3 * table.activation_bytes, rel=1e-3)
    assert found == pytest.approx(told, rel=1e-2)
    assert messages == (2 * table.microbatches if strategy.pipeline > 1 else 0)


def test_a_recommender_s_table_is_its_iteration() -> None:
    model = RecommenderModel(kind="recommender")
    dimensions = _dimensions()
    work = work_of_recommender(model, _HOST, dimensions)
    assert work is not None
    table = table_of_recommender(model, Point(dimensions, _HOST))
    demand = table.demand(table.degrees, dimensions)
    assert demand.compute_ns == pytest.approx(work.demand.compute_ns)
    for rates in ((300.0, 25.0, 5.0), (1.0, 1.0, 1.0), (1e6, 1e6, 1e6)):
        assert demand.communication_ns(rates) == pytest.approx(work.demand.communication_ns(rates))
        # Layers that are joined are reduced when the last of them is done.
        later = demand.time_ns(rates) - work.demand.time_ns(rates)
        reduced_ns = demand.traffic[2:]
        longest_ns = max(one.each_ns(rates) for one in reduced_ns)
        assert -1e-9 * demand.time_ns(rates) <= later <= longest_ns
    assert table.exchanges


@given(st.integers(0, 7))
def test_parts_of_dimensions_and_back(bits: int) -> None:
    degrees = split_degrees((2**bits, 128 // 2**bits), _SIZES)
    assert degrees is not None
    parts = parts_of(degrees)
    assert all(part.size > 1 for part in parts)
    assert degrees_of(parts, 3, 2) == degrees
    # Ranks that are neighbours are of the first degree: its parts come first.
    assert [part.degree for part in parts] == sorted(part.degree for part in parts)
    small = shrunk_alike(parts, {parts[0].key: 2}, 16)
    assert prod(part.size for part in small) <= 16
    assert [part.key for part in small] == [part.key for part in parts]


def test_another_point_is_divided_as_the_winner_is() -> None:
    parts = (Part(0, 0, 8), Part(1, 0, 8))
    assert shrunk_alike(parts, {(1, 0): 2}, 64) == (Part(0, 0, 8), Part(1, 0, 4))
    assert shrunk_alike(parts, {(1, 0): 16}, 64) == (Part(0, 0, 8), Part(1, 0, 2))


def test_connected_hosts_share_the_rate_of_a_dimension() -> None:
    fabric = dimension_fabric((4, 2), (9 * 10**9, 10**9), (0.0, 0.0), connected=True)
    rates = {tuple(link["ends"]): link["rate"] for link in fabric["links"]}
    assert len(rates) == 2 * 6 + 4
    assert rates["h0", "h2"] == rates["h1", "h2"] == "3000000000bps"
    assert rates["h1", "h5"] == "1000000000bps"


def test_latency_and_buffers_stay_out_of_the_way() -> None:
    dimensions = tuple(replace(one, latency_ns=100.0) for one in _dimensions())
    workload = _layers("data")
    table = table_of_layers(workload, Point(dimensions))
    (one,) = table.demand(table.degrees, dimensions).traffic
    assert one.latency_ns == 100 * 2 * (3 + 7 + 3)

"""Iterations as tables of layers: what they ask for is what the model counts."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.design.models.host import Host
from analysis.design.models.listed_work import work_of_layers
from analysis.design.models.messages import split_degrees
from analysis.design.models.recommender import work_of_recommender
from analysis.design.models.tables import (
    NoTable,
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
from topologies.spec.design.models import RecommenderModel, TransformerModel
from topologies.spec.layers_section import LayersWorkload

_HOST = Host(312_000.0, 1e15, 2039.0)
_SIZES = (4, 8, 4)


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


@given(st.sampled_from((1, 4, 8, 64)), st.sampled_from((1, 4)), st.integers(0, 2))
@settings(max_examples=20, deadline=None)
def test_a_transformer_s_table_is_its_iteration(tensor: int, micro: int, zero: int) -> None:
    model = TransformerModel(kind="transformer", layers=16, hidden=8192, heads=64, batch_size=512)
    dimensions = _dimensions()
    point = Point(dimensions, _HOST, Strategy(128 // tensor, tensor, 1, micro, zero))
    assert point.strategy is not None
    work = work_of_transformer(model, point.strategy, _HOST, dimensions)
    assert work is not None
    table = table_of_transformer(model, point)
    demand = table.demand(table.degrees, dimensions)
    assert demand.compute_ns == pytest.approx(work.demand.compute_ns)
    rates = (300.0, 25.0, 5.0)
    assert demand.communication_ns(rates) == pytest.approx(work.demand.communication_ns(rates))
    # 4 rows hide what 16 layers do but for the last one's share.
    window = work.demand.windows_ns[0]
    assert demand.windows_ns[0] == pytest.approx(window * (3 / 4) / (15 / 16))
    shorter = window - demand.windows_ns[0]
    later = demand.time_ns(rates) - work.demand.time_ns(rates)
    assert -1e-6 * window <= later <= shorter * (1 + 1e-6)


def test_a_recommender_s_table_is_its_iteration() -> None:
    model = RecommenderModel(kind="recommender")
    dimensions = _dimensions()
    work = work_of_recommender(model, _HOST, dimensions)
    assert work is not None
    table = table_of_recommender(model, Point(dimensions, _HOST))
    demand = table.demand(table.degrees, dimensions)
    for rates in ((300.0, 25.0, 5.0), (1.0, 1.0, 1.0), (1e6, 1e6, 1e6)):
        assert demand.time_ns(rates) == pytest.approx(work.demand.time_ns(rates), rel=1e-6)
    assert table.exchanges


def test_what_has_no_table() -> None:
    model = TransformerModel(kind="transformer", layers=16, hidden=8192, heads=64, batch_size=512)
    for strategy, key in ((Strategy(16, 4, 2), "pipeline"), (Strategy(32, 4, zero=3), "zero")):
        with pytest.raises(NoTable, match=f"design.strategy.{key}: found .*; allowed"):
            table_of_transformer(model, Point(_dimensions(), _HOST, strategy))


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

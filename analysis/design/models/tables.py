"""The iteration of each workload of a design as a table of layers."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from analysis.design.models.iteration_table import PASSES, IterationTable, TablePass, TableRow
from analysis.design.models.listed_work import layer_groups
from analysis.design.models.messages import split_degrees
from analysis.design.models.recommender import (
    BACKWARD,
    FORWARD,
    GRADIENTS,
    mlp_shapes,
    share_of_recommender,
)
from analysis.design.models.transformer import recomputed, share_of_transformer
from analysis.design.point import Point
from collectives.kinds import Kind
from topologies.spec.design.document import DesignSections
from topologies.spec.design.models import RecommenderModel, TransformerModel
from topologies.spec.layers_section import LayersWorkload
from topologies.spec.workload_section import CollectivesWorkload

MOST_ROWS = 4
"""Rows that stand for the layers of a transformer."""


class NoTable(ValueError):
    """An iteration that has no table: the key, what was found and what is allowed."""


def table_of(sections: DesignSections, point: Point) -> IterationTable:
    """The iteration of a point that the search has solved. Raises NoTable."""
    workload = sections.workload
    assert not isinstance(workload, CollectivesWorkload)
    if isinstance(workload, LayersWorkload):
        return table_of_layers(workload, point)
    if isinstance(workload, TransformerModel):
        return table_of_transformer(workload, point)
    return table_of_recommender(workload, point)


def table_of_layers(workload: LayersWorkload, point: Point) -> IterationTable:
    """All layers and passes joined by pass and kind, one after the other: LIBRA's no_overlap."""
    groups = layer_groups(workload, point.sizes)
    assert groups is not None
    compute_ns = sum(
        layer.update_ns + sum(getattr(layer, name).compute_ns for name in PASSES)
        for layer in workload.layers
    )
    joined: dict[str, list[TablePass]] = {name: [] for name in PASSES}
    for name in PASSES:
        group = groups["data" if name == "weight_gradient" else "model"]
        if group is None or prod(group) < 2:
            continue
        sizes: dict[Kind, float] = {}
        for layer in workload.layers:
            part = getattr(layer, name)
            if part.collective is not None:
                kind = Kind(part.collective)
                size_bytes = part.size_bytes * kind.traits.contributions(prod(group))
                sizes[kind] = sizes.get(kind, 0.0) + size_bytes * workload.passes
        joined[name] = [TablePass(0.0, kind, size) for kind, size in sizes.items()]
    count = max(1, *(len(passes) for passes in joined.values()))
    rows = []
    for index in range(count):
        of_row = {name: passes[index] for name, passes in joined.items() if index < len(passes)}
        update_ns = float(compute_ns * workload.passes) if index == 0 else 0.0
        rows.append(TableRow(f"joined{index}", update_ns=update_ns, **of_row))
    degrees: tuple[tuple[int, ...], ...] = (point.sizes,)
    if workload.innermost is not None:
        pair = [group or (1,) * len(point.sizes) for group in groups.values()]
        degrees = tuple(reversed(pair)) if workload.parallelism == "hybrid-model-data" else (*pair,)
    last_bottom = None
    if workload.parallelism == "hybrid-dlrm":
        # Its table must have a bottom and a top MLP, whose loop is not run without overlap.
        rows += [TableRow(f"none{i}") for i in range(len(rows), 3)]
        last_bottom = 1
    return IterationTable(
        workload.parallelism, degrees, tuple(rows), overlap=False, last_bottom=last_bottom
    )


def table_of_transformer(model: TransformerModel, point: Point) -> IterationTable:
    """At most `MOST_ROWS` rows for the layers of the last microbatch, which come first, as their
    backward passes come last; one for all other microbatches; and one before that gathers
    parameters, with ZeRO. Raises NoTable for pipelines and for ZeRO's third stage."""
    strategy, host = point.strategy, point.host
    assert strategy is not None and host is not None
    if strategy.pipeline > 1:
        found = f"pipeline {strategy.pipeline}"
        raise NoTable(f"design.strategy.pipeline: found {found}; allowed: 1, for what is emulated")
    if strategy.zero == 3:
        raise NoTable("design.strategy.zero: found 3; allowed: 0 to 2, for what is emulated")
    parts = split_degrees((strategy.tensor, strategy.data), point.sizes)
    assert parts is not None
    share = share_of_transformer(model, strategy, host)
    again = recomputed(model)

    def passes(layers: float) -> tuple[TablePass, TablePass]:
        # Two all-reduces of each layer in each of forward, recomputation and backward.
        size_bytes = 2 * layers * share.activation_bytes
        forward = TablePass(layers * share.forward_ns, Kind.ALL_REDUCE, size_bytes)
        backward_ns = layers * share.backward_ns
        return forward, TablePass(backward_ns, Kind.ALL_REDUCE, (1 + again) * size_bytes)

    count = min(MOST_ROWS, model.layers)
    reduce = Kind.REDUCE_SCATTER if strategy.zero else Kind.ALL_REDUCE
    rows = []
    if strategy.zero:
        gathered = TablePass(0.0, Kind.ALL_GATHER, share.gradient_bytes)
        rows.append(TableRow("parameters", weight_gradient=gathered))
    for index in range(count):
        reduced = TablePass(0.0, reduce, share.gradient_bytes / count, window=0)
        update_ns = share.update_ns / count
        rows.append(TableRow(f"layers{index}", *passes(model.layers / count), reduced, update_ns))
    others = strategy.microbatches - 1
    if others:
        rows.append(TableRow("others", *passes(model.layers * others)))
    rows.append(TableRow("logits", TablePass(strategy.microbatches * share.logits_ns)))
    window_ns = (count - 1) / count * model.layers * share.backward_ns
    return IterationTable("hybrid-data-model", parts, tuple(rows), (window_ns,))


def table_of_recommender(model: RecommenderModel, point: Point) -> IterationTable:
    """A row for the tables, two for the bottom MLP (the layer whose gradients come last, and the
    others), and at most `MOST_ROWS` for the top MLP, so that its gradients begin to be reduced
    soon."""
    host = point.host
    assert host is not None
    share = share_of_recommender(model, host, point.ranks)
    bottom, top = mlp_shapes(model)

    def mlp(name: str, shapes: list[tuple[int, int]]) -> TableRow:
        layers = share.mlp(shapes)
        pass_ns = layers.pass_ns
        reduced = TablePass(pass_ns, Kind.ALL_REDUCE, layers.gradient_bytes, BACKWARD)
        return TableRow(name, TablePass(pass_ns), TablePass(pass_ns), reduced, layers.update_ns)

    # Tables are updated when their gradients have come, which is before the next look-up: computed
    # there, it hides no exchange.
    tables = TableRow(
        "tables",
        TablePass(share.tables_ns, Kind.ALL_TO_ALL, share.exchanged_bytes, FORWARD),
        TablePass(0.0, Kind.ALL_TO_ALL, share.exchanged_bytes, GRADIENTS),
    )
    below = [mlp("bottom0", bottom[:1]), *([mlp("bottom", bottom[1:])] if bottom[1:] else [])]
    count = min(MOST_ROWS, len(top))
    cuts = [len(top) * i // count for i in range(count + 1)]
    above = [mlp(f"top{i}", top[a:b]) for i, (a, b) in enumerate(pairwise(cuts))]
    rows = (tables, *below, *above)
    bottom_ns = sum(row.forward.compute_ns for row in below)
    all_ns = bottom_ns + sum(row.forward.compute_ns for row in above)
    windows = (bottom_ns, 2 * bottom_ns, 2 * all_ns - below[0].forward.compute_ns)
    return IterationTable("hybrid-dlrm", (point.sizes,), rows, windows, last_bottom=len(below))

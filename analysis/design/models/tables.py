"""The iteration of each workload of a design as a table of layers."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from analysis.design.models.demand import Window
from analysis.design.models.iteration_table import PASSES, IterationTable, TablePass, TableRow
from analysis.design.models.listed_work import layer_groups
from analysis.design.models.messages import split_degrees
from analysis.design.models.recommender import (
    EXCHANGE,
    EXCHANGE_BACK,
    FIRST_LAYER,
    mlp_shapes,
    share_of_recommender,
    windows_of,
)
from analysis.design.models.transformer import (
    LAST_BACKWARD,
    recomputed,
    share_of_transformer,
)
from analysis.design.point import Point
from collectives.kinds import Kind
from topologies.spec.design.document import DesignSections
from topologies.spec.design.models import RecommenderModel, TransformerModel
from topologies.spec.layers_section import LayersWorkload
from topologies.spec.workload_section import CollectivesWorkload

MOST_ROWS = 4
"""Rows that stand for the layers of a transformer."""
MOST_MICROBATCHES = 8
"""Microbatches that are run one by one, where that matters; more are joined."""


def table_of(sections: DesignSections, point: Point) -> IterationTable:
    """The iteration of a point that the search has solved."""
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
        forward, input_gradient, weight_gradient = (
            joined[name][index] if index < len(joined[name]) else TablePass() for name in PASSES
        )
        update_ns = float(compute_ns * workload.passes) if index == 0 else 0.0
        passes = (forward, input_gradient, weight_gradient)
        rows.append(TableRow(f"joined{index}", *passes, update_ns))
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
    """A row for the logits, and at most `MOST_ROWS` for the layers. A row before the layers gathers
    parameters in ZeRO's first stages; in the third all layers' rows do.

    With a pipeline, or ZeRO's third stage, rows are those of a stage and a microbatch, of which
    there are at most `MOST_MICROBATCHES`. Otherwise they are those of the last microbatch, and a
    row has all others; it comes last, as its backward pass comes first.
    """
    strategy, host = point.strategy, point.host
    assert strategy is not None and host is not None
    parts = split_degrees((strategy.tensor, strategy.data, strategy.pipeline), point.sizes)
    assert parts is not None
    share = share_of_transformer(model, strategy, host)
    again = recomputed(model)
    one_by_one = strategy.pipeline > 1 or strategy.zero == 3
    microbatches = 1
    if one_by_one:
        allowed = range(1, MOST_MICROBATCHES + 1)
        microbatches = max(n for n in allowed if strategy.microbatches % n == 0)
    # Microbatches that a pass of the table stands for.
    joined = strategy.microbatches // microbatches if one_by_one else 1

    def passes(layers: float) -> tuple[TablePass, TablePass]:
        # Two all-reduces of each layer in each of forward, recomputation and backward.
        size_bytes = 2 * layers * share.activation_bytes
        forward = TablePass(layers * share.forward_ns, Kind.ALL_REDUCE, size_bytes)
        backward_ns = layers * share.backward_ns
        return forward, TablePass(backward_ns, Kind.ALL_REDUCE, (1 + again) * size_bytes)

    count = min(MOST_ROWS, share.layers)
    of_row = joined * share.layers / count
    reduce = Kind.REDUCE_SCATTER if strategy.zero else Kind.ALL_REDUCE
    alone = 1 if one_by_one else strategy.microbatches
    rows = [TableRow("logits", TablePass(joined * alone * share.logits_ns))]
    if strategy.zero in (1, 2):
        gathered = TablePass(0.0, Kind.ALL_GATHER, share.gradient_bytes)
        rows.append(TableRow("parameters", weight_gradient=gathered))
    for index in range(count):
        # The row whose gradients come last has nothing to hide them behind.
        window = 0 if index else None
        rows.append(
            TableRow(
                f"layers{index}",
                *passes(of_row),
                TablePass(0.0, reduce, share.gradient_bytes / count, window),
                share.update_ns / count,
                joined * share.gradient_bytes / count if strategy.zero == 3 else 0.0,
            )
        )
    if alone > 1:
        rows.append(TableRow("others", *passes(share.layers * (alone - 1))))
    window_ns = (count - 1) * of_row * share.backward_ns
    return IterationTable(
        "hybrid-data-model",
        parts,
        tuple(rows),
        (Window(window_ns, LAST_BACKWARD),),
        microbatches=microbatches,
        activation_bytes=joined * share.activation_bytes,
    )


def table_of_recommender(model: RecommenderModel, point: Point) -> IterationTable:
    """A row for the tables, two for the bottom MLP (the layer whose gradients come last, and the
    others), and at most `MOST_ROWS` for the top MLP, so that its gradients begin to be reduced
    soon."""
    host = point.host
    assert host is not None
    share = share_of_recommender(model, host, point.ranks)
    bottom, top = mlp_shapes(model)

    count = min(MOST_ROWS, len(top))
    cuts = [len(top) * i // count for i in range(count + 1)]
    parts = [("bottom0", bottom[:1]), *([("bottom", bottom[1:])] if bottom[1:] else [])]
    below = len(parts)
    parts += [(f"top{i}", top[a:b]) for i, (a, b) in enumerate(pairwise(cuts))]
    layers = [(name, share.mlp(shapes)) for name, shapes in parts]

    # Tables are updated when their gradients have come, which is before the next look-up: computed
    # there, it hides no exchange.
    tables = TableRow(
        "tables",
        TablePass(share.tables_ns, Kind.ALL_TO_ALL, share.exchanged_bytes, EXCHANGE),
        TablePass(0.0, Kind.ALL_TO_ALL, share.exchanged_bytes, EXCHANGE_BACK),
    )
    rows = [tables]
    for window, (name, one) in enumerate(layers, FIRST_LAYER):
        computed = TablePass(one.pass_ns)
        reduced = TablePass(one.pass_ns, Kind.ALL_REDUCE, one.gradient_bytes, window)
        rows.append(TableRow(name, computed, computed, reduced, one.update_ns))
    windows = windows_of([one.pass_ns for _, one in layers], below)
    return IterationTable("hybrid-dlrm", (point.sizes,), tuple(rows), windows, last_bottom=below)

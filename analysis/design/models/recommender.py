"""A DLRM's iteration on one host: tables spread over all ranks, MLPs data-parallel.

Model and loop: Naumov et al., arXiv 1906.00091; Rashidi et al., Hot Interconnects 2020, whose layer
table (astra-sim/libra, inputs/workload/DLRM.txt) the defaults give again. The AlltoAll of the
forward pass hides behind the bottom MLP, that of gradients behind the bottom MLP's backward pass,
and gradients of the MLPs behind what is left of the backward pass when they are posted. The last
two share the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from analysis.design.models.demand import Demand, Window
from analysis.design.models.footprint import OPTIMIZER_BYTES, UPDATE_BYTES
from analysis.design.models.host import Host, Kernel, product, time_of
from analysis.design.models.listed_work import merged, traffic_of
from analysis.design.network import Dimension
from analysis.design.point import Work
from collectives.kinds import Kind
from topologies.spec.design.models import RecommenderModel
from topologies.spec.workload_types import ITEM_BYTES

EXCHANGE, EXCHANGE_BACK, FIRST_LAYER = 0, 1, 2
"""Windows of the vectors, of their gradients, and of the first layer's gradients; those of other
layers follow."""


def mlp_shapes(model: RecommenderModel) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(inputs, outputs) of the layers of the bottom and of the top MLP, whose inputs are the
    tables' vectors and the dense one, joined."""
    joined = (model.sparse_features + 1) * model.embedding_dimension
    bottom = list(pairwise((model.dense_features, *model.bottom_mlp)))
    return bottom, list(pairwise((joined, *model.top_mlp)))


def footprint_of(model: RecommenderModel, ranks: int) -> tuple[tuple[str, float], ...]:
    """Bytes of a host by what they are of: its share of the tables; MLPs in 16 bit with their
    gradients and optimizer states; activations of its samples."""
    item = ITEM_BYTES[model.dtype]
    layers = [shape for shapes in mlp_shapes(model) for shape in shapes]
    weights = float(sum(inputs * outputs for inputs, outputs in layers))
    vectors = float(model.sparse_features * model.embedding_dimension)
    kept = model.batch_size // ranks * (vectors + sum(outputs for _, outputs in layers))
    return (
        ("tables", vectors * model.rows * item / ranks),
        ("MLPs", weights * (2 * item + OPTIMIZER_BYTES)),
        ("activations", item * kept),
    )


@dataclass(frozen=True, slots=True)
class MlpShare:
    """Layers of an MLP on a host: what each of a forward, an input-gradient and a weight-gradient
    pass takes, the bytes of their gradients, and what their update takes."""

    pass_ns: float
    gradient_bytes: float
    update_ns: float


@dataclass(frozen=True, slots=True)
class RecommenderShare:
    """A host's work in an iteration: `tables_ns` are look-ups and updates of its part of
    the tables, `exchanged_bytes` the vectors of an AlltoAll."""

    model: RecommenderModel
    host: Host
    samples: int
    tables_ns: float
    exchanged_bytes: float
    footprint: tuple[tuple[str, float], ...]

    @property
    def footprint_bytes(self) -> float:
        """The sum of all parts."""
        return sum(size for _, size in self.footprint)

    def mlp(self, shapes: Sequence[tuple[int, int]]) -> MlpShare:
        """Layers of these shapes."""
        item = ITEM_BYTES[self.model.dtype]
        products = (product(self.samples, inputs, outputs, item) for inputs, outputs in shapes)
        weights = float(sum(inputs * outputs for inputs, outputs in shapes))
        update = Kernel(0.0, UPDATE_BYTES * weights)
        return MlpShare(
            time_of(products, self.host, self.footprint_bytes),
            item * weights,
            update.time_ns(self.host, self.footprint_bytes),
        )


def share_of_recommender(model: RecommenderModel, host: Host, ranks: int) -> RecommenderShare:
    """The share of each host, of ranks that divide the batch."""
    item = ITEM_BYTES[model.dtype]
    samples = model.batch_size // ranks
    vectors = float(model.sparse_features * model.embedding_dimension)
    looked_up = item * model.batch_size * model.pooling * vectors / ranks
    footprint = footprint_of(model, ranks)
    # A gradient reads each row that was looked up, and writes it.
    tables = (Kernel(0.0, looked_up), Kernel(0.0, 2 * looked_up))
    tables_ns = time_of(tables, host, sum(size for _, size in footprint))
    return RecommenderShare(model, host, samples, tables_ns, item * samples * vectors, footprint)


def work_of_recommender(
    model: RecommenderModel, host: Host, dimensions: Sequence[Dimension]
) -> Work | None:
    """An iteration; None when the ranks do not divide the batch."""
    sizes = [dimension.size for dimension in dimensions]
    ranks = prod(sizes)
    if model.batch_size % ranks:
        return None
    share = share_of_recommender(model, host, ranks)
    shapes = mlp_shapes(model)
    below, above = ([share.mlp([shape]) for shape in mlp] for mlp in shapes)
    layers = (*below, *above)
    compute_ns = share.tables_ns + sum(3 * one.pass_ns + one.update_ns for one in layers)
    exchanged, kind = share.exchanged_bytes, Kind.ALL_TO_ALL
    traffic = [
        traffic_of("exchange", kind, exchanged, sizes, dimensions, window=EXCHANGE),
        traffic_of("exchange back", kind, exchanged, sizes, dimensions, window=EXCHANGE_BACK),
    ]
    for window, one in enumerate(layers, FIRST_LAYER):
        size_bytes, kind = one.gradient_bytes, Kind.ALL_REDUCE
        traffic.append(traffic_of("data", kind, size_bytes, sizes, dimensions, window=window))
    windows = windows_of([one.pass_ns for one in layers], len(below))
    demand = Demand(compute_ns, merged(traffic), windows)
    return Work(demand, share.footprint_bytes, share.footprint)


def windows_of(passes_ns: Sequence[float], below: int) -> tuple[Window, ...]:
    """The windows that hide the exchanges, and the gradients of each layer, or of layers that are
    one: the rest of the backward pass from where they are posted, behind the weight gradient.
    `passes_ns` are of one pass of each, the first `below` the bottom MLP's."""
    bottom_ns = sum(passes_ns[:below])
    windows = [Window(bottom_ns, "forward pass"), Window(2 * bottom_ns, "backward pass")]
    before_ns = 0.0
    for pass_ns in passes_ns:
        windows.append(Window(pass_ns + 2 * before_ns, "backward pass"))
        before_ns += pass_ns
    return tuple(windows)

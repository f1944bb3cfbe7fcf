"""A DLRM's iteration on one host: tables spread over all ranks, MLPs data-parallel.

Model and loop: Naumov et al., arXiv 1906.00091; Rashidi et al., Hot Interconnects 2020, whose layer
table (astra-sim/libra, inputs/workload/DLRM.txt) the defaults give again. The AlltoAll of the
forward pass hides behind the bottom MLP, that of gradients behind the bottom MLP's backward pass,
gradients of the MLPs behind the backward pass but for the layer that comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from analysis.design.models.demand import Demand
from analysis.design.models.footprint import OPTIMIZER_BYTES, UPDATE_BYTES
from analysis.design.models.host import Host, Kernel, product
from analysis.design.models.listed_work import merged, traffic_of
from analysis.design.network import Dimension
from analysis.design.point import Work
from collectives.kinds import Kind
from topologies.spec.design.models import RecommenderModel
from topologies.spec.workload_section import ITEM_BYTES

FORWARD, GRADIENTS, BACKWARD = 0, 1, 2


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


def work_of_recommender(
    model: RecommenderModel, host: Host, dimensions: Sequence[Dimension]
) -> Work | None:
    """An iteration; None when the ranks do not divide the batch."""
    sizes = [dimension.size for dimension in dimensions]
    ranks = 1
    for size in sizes:
        ranks *= size
    if model.batch_size % ranks:
        return None
    item = ITEM_BYTES[model.dtype]
    local = model.batch_size // ranks
    bottom, top = mlp_shapes(model)
    weights = float(sum(inputs * outputs for inputs, outputs in (*bottom, *top)))
    vectors = float(model.sparse_features * model.embedding_dimension)
    footprint = footprint_of(model, ranks)
    footprint_bytes = sum(size for _, size in footprint)

    def time_of(*kernels: Kernel) -> float:
        return sum(kernel.time_ns(host, footprint_bytes) for kernel in kernels)

    def pass_of(shapes: Sequence[tuple[int, int]]) -> float:
        return time_of(*(product(local, inputs, outputs, item) for inputs, outputs in shapes))

    bottom_ns, top_ns = pass_of(bottom), pass_of(top)
    looked_up = item * model.batch_size * model.pooling * vectors / ranks
    # A gradient reads each row that was looked up, and writes it.
    tables_ns = time_of(Kernel(0.0, looked_up), Kernel(0.0, 2 * looked_up))
    compute_ns = 3 * (bottom_ns + top_ns) + tables_ns
    compute_ns += time_of(Kernel(0.0, UPDATE_BYTES * weights))
    last = pass_of(bottom[:1])
    windows = (bottom_ns, 2 * bottom_ns, 2 * (bottom_ns + top_ns) - last)
    exchanged = item * local * vectors
    traffic = (
        traffic_of("exchange", Kind.ALL_TO_ALL, exchanged, sizes, dimensions, 1, FORWARD),
        traffic_of("exchange back", Kind.ALL_TO_ALL, exchanged, sizes, dimensions, 1, GRADIENTS),
        traffic_of("data", Kind.ALL_REDUCE, item * weights, sizes, dimensions, 1, BACKWARD),
    )
    return Work(Demand(compute_ns, merged(traffic), windows), footprint_bytes, footprint)

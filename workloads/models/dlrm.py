"""A DLRM-like model (Naumov et al., arXiv 1906.00091): its sizes per rank, and a training step.

Embedding tables are model-parallel: the columns of all tables (sparse_features *
embedding_dimension) are divided evenly among the ranks, each rank looks its columns up for the
global batch, and an all-to-all regroups them by sample. The MLPs are data-parallel: their
gradients are all-reduced in buckets while the backward pass goes on, as PyTorch's DDP does (Li
et al., VLDB 2020).

forward     embedding look-up, AlltoAll (overlapping the bottom MLP), interaction, top MLP
backward    top MLP, interaction, AlltoAll of the embedding gradients (overlapping the bottom MLP),
            bottom MLP; a bucket of gradients goes out as soon as it is full
update      embedding rows, then the dense parameters once all buckets are reduced
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collectives.kinds import Kind
from topologies.spec.workload_section import DlrmWorkload
from workloads.models.gradient_buckets import GradientBuckets
from workloads.models.step import Action, ComputeKernel, StartCollective, WaitFor


@dataclass(frozen=True, slots=True)
class Layer:
    """A fully connected layer of an MLP."""

    name: str
    inputs: int
    outputs: int

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs + self.outputs

    def flops(self, batch: int) -> int:
        """Multiply-adds of the forward pass, counted as two operations each."""
        return 2 * batch * self.inputs * self.outputs

    def moved_bytes(self, batch: int, item_bytes: int) -> int:
        """Weights, inputs and outputs, each moved once."""
        return item_bytes * (self.parameters + batch * (self.inputs + self.outputs))


def _layers(name: str, inputs: int, widths: tuple[int, ...]) -> tuple[Layer, ...]:
    return tuple(
        Layer(f"{name}{index}", before, width)
        for index, (before, width) in enumerate(zip((inputs, *widths), widths, strict=False))
    )


@dataclass(frozen=True)
class DlrmModel:
    """The sizes that a spec implies; everything is per rank and iteration."""

    spec: DlrmWorkload

    @property
    def item_bytes(self) -> int:
        return self.spec.item_bytes

    @property
    def columns(self) -> int:
        """Embedding columns of all tables together."""
        return self.spec.sparse_features * self.spec.embedding_dimension

    @property
    def exchanged(self) -> int:
        """Elements that a rank sends in an all-to-all: its batch times all columns."""
        return self.spec.batch_size * self.columns

    @property
    def bottom(self) -> tuple[Layer, ...]:
        return _layers("bottom_mlp", self.spec.dense_features, self.spec.bottom_mlp)

    @property
    def top(self) -> tuple[Layer, ...]:
        """The top MLP; its input is the bottom MLP's output and the pairwise dot products."""
        vectors = self.spec.sparse_features + 1
        pairs = vectors * (vectors - 1) // 2
        return _layers("top_mlp", self.spec.bottom_mlp[-1] + pairs, self.spec.top_mlp)

    @property
    def look_up_bytes(self) -> int:
        """Rows read by a rank's share of the columns for the global batch, `pooling` per sample."""
        return self.exchanged * self.spec.pooling * self.item_bytes

    @property
    def interaction_flops(self) -> int:
        vectors = self.spec.sparse_features + 1
        pairs = vectors * (vectors - 1) // 2
        return 2 * self.spec.batch_size * pairs * self.spec.embedding_dimension

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in (*self.bottom, *self.top))

    @property
    def bucket_parameters(self) -> int:
        """A bucket of gradients is sent once it holds as many."""
        return max(self.spec.bucket_bytes // self.item_bytes, 1)


def dlrm_step(model: DlrmModel) -> Iterator[Action]:
    """One iteration; the same on every rank."""
    overlap = model.spec.overlap
    vectors_bytes = model.exchanged * model.item_bytes
    buckets = GradientBuckets("mlp_gradient", "world", model.bucket_parameters, overlap=overlap)

    def exchange(phase: str) -> Iterator[Action]:
        yield StartCollective(f"{phase}.0", phase, Kind.ALL_TO_ALL, model.exchanged, "world")
        if not overlap:
            yield WaitFor(f"{phase}.0")

    def exchanged(phase: str) -> Iterator[Action]:
        if overlap:
            yield WaitFor(f"{phase}.0")

    def backward(layers: tuple[Layer, ...]) -> Iterator[Action]:
        for layer in reversed(layers):
            # Two products of the forward's size: gradients by weights and by inputs.
            yield _pass(model, layer, "mlp_backward", 2)
            yield from buckets.add(layer.parameters)

    yield ComputeKernel("embedding_lookup", "embedding_forward", 0, model.look_up_bytes)
    yield from exchange("embedding_forward")
    for layer in model.bottom:
        yield _pass(model, layer, "mlp_forward", 1)
    yield from exchanged("embedding_forward")
    yield ComputeKernel(
        "interaction", "interaction_forward", model.interaction_flops, vectors_bytes
    )
    for layer in model.top:
        yield _pass(model, layer, "mlp_forward", 1)

    yield from backward(model.top)
    yield ComputeKernel(
        "interaction", "interaction_backward", 2 * model.interaction_flops, 2 * vectors_bytes
    )
    yield from exchange("embedding_backward")
    yield from backward(model.bottom)
    yield from buckets.flush()
    yield from exchanged("embedding_backward")
    # Each looked-up row is read, changed and written.
    yield ComputeKernel("embedding_update", "update", 0, 2 * model.look_up_bytes)
    yield from buckets.wait()
    # Plain SGD: read the parameter and its gradient, write the parameter.
    yield ComputeKernel(
        "sgd", "update", 2 * model.parameters, 3 * model.parameters * model.item_bytes
    )


def _pass(model: DlrmModel, layer: Layer, phase: str, products: int) -> ComputeKernel:
    batch = model.spec.batch_size
    flops = products * layer.flops(batch)
    return ComputeKernel(
        layer.name, phase, flops, products * layer.moved_bytes(batch, model.item_bytes)
    )


def actions(workload: DlrmWorkload, rank: int) -> Iterator[Action]:
    """One iteration of a rank."""
    return dlrm_step(DlrmModel(workload))

"""The `partitioned_inference` workload: a trained network, split over workers that infer."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from topologies.spec.errors import Problem, shown
from topologies.spec.fabric_section import Integer
from topologies.spec.queue_section import SpecSection
from topologies.spec.workload_types import Dtype, Iterations, SeveralRanks
from topologies.spec.workloads import WorkloadSection

Units = Annotated[Integer, Field(ge=1, le=4096)]
Seed = Annotated[Integer, Field(ge=0, lt=2**32)]
Cost = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class MlpNetwork(SpecSection):
    """Fully connected layers of `hidden` neurons and one of the classes, trained on images that are
    made from `seed`. A worker has a strip of rows of each image."""

    kind: Literal["mlp"]
    hidden: tuple[Units, ...] = Field(default=(128, 128), min_length=1, max_length=8)
    seed: Seed = 1

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each layer but the last."""
        return self.hidden


class CnnNetwork(SpecSection):
    """Convolutions of 3x3 with as many `channels`, each halved by max pooling, then fully connected
    layers of `hidden` neurons and one of the classes, trained as an `mlp`. Every worker has whole
    images."""

    kind: Literal["cnn"]
    channels: tuple[Units, ...] = Field(default=(16, 32), min_length=1, max_length=2)
    hidden: tuple[Units, ...] = Field(default=(64,), max_length=8)
    seed: Seed = 1

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each layer but the last."""
        return (*self.channels, *self.hidden)


class BlockDiagonalNetwork(SpecSection):
    """`layers` fully connected layers of `width` neurons that are `blocks` networks side by side
    with random weights, hidden by a random order of the neurons of each layer. The inputs of a
    block are on one worker."""

    kind: Literal["block-diagonal"]
    blocks: Units
    width: Units = 64
    layers: Annotated[Integer, Field(ge=1, le=8)] = 3
    seed: Seed = 1

    @model_validator(mode="after")
    def _even(self) -> BlockDiagonalNetwork:
        if self.width % self.blocks:
            raise ValueError(f"expected width to be a multiple of blocks = {self.blocks}")
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each layer."""
        return (self.width,) * self.layers


NetworkSpec: TypeAlias = MlpNetwork | CnnNetwork | BlockDiagonalNetwork


class PartitionSpec(SpecSection):
    """Which neuron goes to which worker, and what is pruned for that (docs/partitions.md).

    `crossing_cost` is lambda: what it costs that everything crosses between workers, against the
    error of pruning everything. `sparsity_cost` is the cost of all weights when they stay. `prune`
    is the unit of pruning: a single weight, or all weights by which a worker needs an activation.
    `refit` finds the weights that stay anew by least squares against the layer's outputs. `sweeps`
    is how often the layers are gone through.
    """

    assignment: Literal["munkres", "contiguous"] = "munkres"
    crossing_cost: Cost = 0.0
    sparsity_cost: Cost = 0.0
    prune: Literal["activations", "weights"] = "activations"
    refit: bool = Field(default=True, strict=True)
    sweeps: Annotated[Integer, Field(ge=1, le=100)] = 3


class PartitionedInferenceWorkload(WorkloadSection):
    """Inference by a network whose neurons are divided among the ranks: batch after batch, each
    rank computes its neurons and sends others the activations that they need."""

    own_contents: ClassVar[bool] = True
    kind: Literal["partitioned_inference"]
    ranks: SeveralRanks
    iterations: Iterations = 3
    batch_size: Annotated[Integer, Field(ge=1, le=65_536)] = 32
    network: Annotated[NetworkSpec, Field(discriminator="kind")]
    partition: PartitionSpec = PartitionSpec()
    dtype: Dtype = "float32"
    overlap: bool = Field(default=True, strict=True)

    @model_validator(mode="after")
    def _one_for_each(self) -> PartitionedInferenceWorkload:
        fewest = min(self.network.widths)
        if fewest < self.ranks:
            problem = Problem(
                ("workload", "network"),
                f"a layer of {shown(fewest)} units",
                f"expected at least one for each rank, {self.ranks}, in every layer but the last",
            )
            raise PydanticCustomError(
                "too_narrow", "{text}", {"text": str(problem), "problems": [problem]}
            )
        return self

"""A transformer under tensor, pipeline and data parallelism: a rank's share, and a training step.

The schedule is GPipe's (Huang et al., NeurIPS 2019): all microbatches forward, then all
backward. Each layer all-reduces its activations twice per direction among the tensor-parallel
ranks (Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3); stages hand activations on by
send/recv; gradients are all-reduced in buckets among the data-parallel ranks, overlapping the
last microbatch's backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collectives.kinds import Kind
from topologies.spec.workload_section import TrainingWorkload
from workloads.models.gradient_buckets import GradientBuckets
from workloads.models.step import (
    Action,
    ComputeKernel,
    StartCollective,
    StartMessage,
    WaitFor,
)


@dataclass(frozen=True)
class Stage:
    """One rank's place and share of the model. Rank = (pipeline, data, tensor), tensor fastest."""

    spec: TrainingWorkload
    rank: int

    @property
    def pipeline(self) -> int:
        return self.rank // (self.spec.parallelism.data * self.spec.parallelism.tensor)

    @property
    def first(self) -> bool:
        return self.pipeline == 0

    @property
    def last(self) -> bool:
        return self.pipeline == self.spec.parallelism.pipeline - 1

    @property
    def stride(self) -> int:
        """Distance in ranks to the same place of the neighbouring stage."""
        return self.spec.parallelism.data * self.spec.parallelism.tensor

    @property
    def layers(self) -> int:
        return self.spec.layers // self.spec.parallelism.pipeline

    @property
    def tokens(self) -> int:
        """Tokens of one microbatch."""
        return self.spec.batch_size * self.spec.sequence

    @property
    def activation(self) -> int:
        """Elements of a layer's output for one microbatch."""
        return self.tokens * self.spec.hidden

    @property
    def layer_parameters(self) -> int:
        """Attention 4 h^2 and feed-forward 8 h^2, divided among the tensor-parallel ranks."""
        return 12 * self.spec.hidden**2 // self.spec.parallelism.tensor

    @property
    def head_parameters(self) -> int:
        return self.spec.vocabulary * self.spec.hidden // self.spec.parallelism.tensor

    @property
    def item_bytes(self) -> int:
        return self.spec.item_bytes

    @property
    def bucket_parameters(self) -> int:
        """A bucket of gradients is sent once it holds as many."""
        return -(-self.spec.bucket_bytes // self.item_bytes)

    @property
    def layer_flops(self) -> int:
        """Forward operations: two per parameter and token, and the attention scores and their
        use.
        """
        scores = 4 * self.tokens * self.spec.sequence * self.spec.hidden
        return 2 * self.tokens * self.layer_parameters + scores // self.spec.parallelism.tensor


def training_step(stage: Stage) -> Iterator[Action]:
    """One iteration of the stage's rank."""
    spec = stage.spec
    buckets = GradientBuckets("gradient", "data", stage.bucket_parameters, overlap=spec.overlap)
    sends: list[StartMessage] = []

    def send(direction: str, microbatch: int, distance: int) -> StartMessage:
        sends.append(_message(stage, direction, microbatch, stage.rank, stage.rank + distance))
        return sends[-1]

    def receive(direction: str, microbatch: int, distance: int) -> Iterator[Action]:
        message = _message(stage, direction, microbatch, stage.rank + distance, stage.rank)
        yield message
        yield WaitFor(message.name)

    def reduce(parameters: int, microbatch: int) -> Iterator[Action]:
        if spec.parallelism.data > 1 and microbatch == spec.microbatches - 1:
            yield from buckets.add(parameters)

    for microbatch in range(spec.microbatches):
        if not stage.first:
            yield from receive("forward", microbatch, -stage.stride)
        for layer in range(stage.layers):
            yield from _layer(stage, "forward", microbatch, layer, 1)
        if stage.last:
            yield _head(stage, "forward", 1)
        else:
            yield send("forward", microbatch, stage.stride)
    for microbatch in range(spec.microbatches):
        if stage.last:
            yield _head(stage, "backward", 2)
            yield from reduce(stage.head_parameters, microbatch)
        else:
            yield from receive("backward", microbatch, stage.stride)
        for layer in reversed(range(stage.layers)):
            yield from _layer(stage, "backward", microbatch, layer, 2)
            yield from reduce(stage.layer_parameters, microbatch)
        if not stage.first:
            yield send("backward", microbatch, -stage.stride)
    yield from buckets.flush()
    for message in sends:
        yield WaitFor(message.name)
    yield from buckets.wait()
    parameters = stage.layers * stage.layer_parameters
    yield ComputeKernel("sgd", "update", 2 * parameters, 3 * parameters * stage.item_bytes)


def _layer(
    stage: Stage, direction: str, microbatch: int, layer: int, products: int
) -> Iterator[Action]:
    """Attention, then feed-forward, each ended by a tensor-parallel all-reduce."""
    flops = products * stage.layer_flops // 2
    moved = stage.item_bytes * (stage.layer_parameters // 2 + 2 * stage.activation)
    phase = f"tensor_{direction}"
    for half in ("attention", "feed_forward"):
        yield ComputeKernel(f"layer{layer}_{half}", direction, flops, products * moved)
        if stage.spec.parallelism.tensor > 1:
            name = f"{phase}.{microbatch}.{layer}.{half}"
            yield StartCollective(name, phase, Kind.ALL_REDUCE, stage.activation, "tensor")
            yield WaitFor(name)


def _head(stage: Stage, direction: str, products: int) -> ComputeKernel:
    flops = 2 * stage.tokens * stage.head_parameters
    moved = stage.item_bytes * (stage.head_parameters + stage.activation)
    return ComputeKernel("head", direction, products * flops, products * moved)


def _message(
    stage: Stage, direction: str, microbatch: int, source: int, destination: int
) -> StartMessage:
    """Activations forward, their gradients backward."""
    phase = f"pipeline_{direction}"
    name = f"{phase}.{microbatch}.{source}"
    return StartMessage(name, phase, stage.activation, source, destination)


def actions(workload: TrainingWorkload, rank: int) -> Iterator[Action]:
    """One iteration of a rank."""
    return training_step(Stage(workload, rank))

"""A training step of a transformer under tensor, pipeline and data parallelism.

The schedule is GPipe's (Huang et al., NeurIPS 2019): all microbatches forward, then all
backward. Each layer all-reduces its activations twice per direction among the tensor-parallel
ranks (Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3); stages hand activations on by
send/recv; gradients are all-reduced in buckets among the data-parallel ranks, overlapping the
last microbatch's backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from topologies.gradient_buckets import GradientBuckets
from topologies.step import Action, Collective, Kernel, Message, Wait
from topologies.training_model import Stage


def training_step(stage: Stage) -> Iterator[Action]:
    """One iteration of the stage's rank."""
    spec = stage.spec
    buckets = GradientBuckets("gradient", "data", stage.bucket_parameters, overlap=spec.overlap)
    sends: list[Message] = []

    def send(direction: str, microbatch: int, distance: int) -> Message:
        sends.append(_message(stage, direction, microbatch, stage.rank, stage.rank + distance))
        return sends[-1]

    def receive(direction: str, microbatch: int, distance: int) -> Iterator[Action]:
        message = _message(stage, direction, microbatch, stage.rank + distance, stage.rank)
        yield message
        yield Wait(message.name)

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
        yield Wait(message.name)
    yield from buckets.wait()
    parameters = stage.layers * stage.layer_parameters
    yield Kernel("sgd", "update", 2 * parameters, 3 * parameters * stage.item_bytes)


def _layer(
    stage: Stage, direction: str, microbatch: int, layer: int, products: int
) -> Iterator[Action]:
    """Attention, then feed-forward, each ended by a tensor-parallel all-reduce."""
    flops = products * stage.layer_flops // 2
    moved = stage.item_bytes * (stage.layer_parameters // 2 + 2 * stage.activation)
    phase = f"tensor_{direction}"
    for half in ("attention", "feed_forward"):
        yield Kernel(f"layer{layer}_{half}", direction, flops, products * moved)
        if stage.spec.parallelism.tensor > 1:
            name = f"{phase}.{microbatch}.{layer}.{half}"
            yield Collective(name, phase, "all_reduce", stage.activation, "tensor")
            yield Wait(name)


def _head(stage: Stage, direction: str, products: int) -> Kernel:
    flops = 2 * stage.tokens * stage.head_parameters
    moved = stage.item_bytes * (stage.head_parameters + stage.activation)
    return Kernel("head", direction, products * flops, products * moved)


def _message(
    stage: Stage, direction: str, microbatch: int, source: int, destination: int
) -> Message:
    """Activations forward, their gradients backward."""
    phase = f"pipeline_{direction}"
    name = f"{phase}.{microbatch}.{source}"
    return Message(name, phase, stage.activation, source, destination)

"""One batch through a split network, as a rank's main thread does it.

For each layer a rank posts what it sends and receives, computes with the units that it has, waits
for those of others, and computes with these (without `overlap`: waits first, then computes). It
waits for its sends at the end. Weights that stay are counted as dense blocks: a rank's neurons by
the units that it needs."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.spec.partition.section import PartitionedInferenceWorkload
from workloads.models.partition.split import SplitNetwork
from workloads.models.step import Action, ComputeKernel, StartMessage, WaitFor

OWN, RECEIVED = "own", "received"


def inference_step(
    workload: PartitionedInferenceWorkload, split: SplitNetwork, rank: int
) -> Iterator[Action]:
    """One iteration of a rank."""
    sent: list[str] = []
    for number in range(len(split.network.layers)):
        received: list[str] = []
        for shift in range(1, split.workers):
            # The one behind first, so that no rank is everybody's first.
            for source, destination in (
                ((rank - shift) % split.workers, rank),
                (rank, (rank + shift) % split.workers),
            ):
                units = len(split.crossing(number, source, destination))
                if units:
                    name = message_name(number, source, destination)
                    features = split.network.layers[number].features_in
                    elements = workload.batch_size * units * features
                    phase = "activations" if number else "inputs"
                    yield StartMessage(name, phase, elements, source, destination)
                    (sent if source == rank else received).append(name)
        others = sum(
            len(split.crossing(number, source, rank))
            for source in range(split.workers)
            if source != rank
        )
        waits = [WaitFor(name) for name in received]
        if not workload.overlap:
            yield from waits
        if len(split.neurons(number, rank)):
            yield _kernel(workload, split, number, rank, OWN, len(split.own(number, rank)))
        if workload.overlap:
            yield from waits
        if others:
            yield _kernel(workload, split, number, rank, RECEIVED, others)
    for name in sent:
        yield WaitFor(name)


def message_name(layer: int, source: int, destination: int) -> str:
    """The name of a layer's units of one rank on their way to another."""
    return f"layer{layer}.{source}to{destination}"


def layer_of(name: str) -> int:
    """The number of the layer that a message or a kernel is named after."""
    return int(name.partition(".")[0].removeprefix("layer"))


def _kernel(
    workload: PartitionedInferenceWorkload,
    split: SplitNetwork,
    number: int,
    rank: int,
    which: str,
    units: int,
) -> ComputeKernel:
    """A block of the layer: the rank's neurons by so many units; sums are written, and read again
    by those that add to them."""
    layer = split.network.layers[number]
    neurons, batch = len(split.neurons(number, rank)), workload.batch_size
    sums = batch * neurons * layer.side**2
    weights = neurons * units * int(layer.weights.shape[2])
    elements = weights + batch * units * layer.features_in + (sums if which == OWN else 2 * sums)
    return ComputeKernel(
        f"layer{number}.{which}",
        "inference",
        batch * layer.flops * neurons * units,
        elements * workload.item_bytes,
    )

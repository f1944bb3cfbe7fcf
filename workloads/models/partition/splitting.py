"""The split of the network that a spec names: made once, in a few seconds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from topologies.spec.partition.section import (
    NetworkSpec,
    PartitionedInferenceWorkload,
    PartitionSpec,
)
from workloads.models.partition.assignment import assigned, contiguous, total_cost
from workloads.models.partition.made import made_network
from workloads.models.partition.network import Floats, Ints, Network, accuracy, activations
from workloads.models.partition.objective import EVERYWHERE, LayerCosts, kept
from workloads.models.partition.one_thread import one_thread
from workloads.models.partition.refit import refitted
from workloads.models.partition.split import SplitNetwork


@dataclass(frozen=True, slots=True)
class SplitFigures:
    """The figures of a split: elements that cross per sample, of how many if all did; the share of
    weights that stay; the share of test inputs that are told right, before and after; and the
    objective."""

    crossing_elements: int
    most_crossing_elements: int
    kept_weights: float
    unsplit_accuracy: float
    accuracy: float
    cost: float


def split_of(workload: PartitionedInferenceWorkload) -> SplitNetwork:
    """The split network of a spec; trained and split once, which takes seconds."""
    return _split(workload.network, workload.partition, workload.ranks)[0]


def figures_of(workload: PartitionedInferenceWorkload) -> SplitFigures:
    """The figures of a spec's split."""
    split, cost = _split(workload.network, workload.partition, workload.ranks)
    made = made_network(workload.network)
    weights = sum(mask.size for mask in split.masks)
    with one_thread():
        return SplitFigures(
            split.crossing_elements,
            split.most_crossing_elements,
            round(sum(int(mask.sum()) for mask in split.masks) / weights, 6),
            round(accuracy(made.network, made.tests, made.labels), 6),
            round(accuracy(split.network, made.tests, made.labels), 6),
            round(cost, 9),
        )


def batch_of(workload: PartitionedInferenceWorkload) -> Floats:
    """The inputs of every iteration, (batch_size, features): test inputs, again from the
    first where these are fewer."""
    tests = made_network(workload.network).tests
    return tests[np.arange(workload.batch_size) % len(tests)]


@lru_cache(maxsize=64)
def _split(
    network: NetworkSpec, partition: PartitionSpec, workers: int
) -> tuple[SplitNetwork, float]:
    made = made_network(network)
    with one_thread():
        costs = layer_costs(made.network, made.typical, partition, workers)
        inputs = input_places(made.network, workers)
        if partition.assignment == "contiguous":
            places = contiguous(costs)
        else:
            places = assigned(costs, inputs, partition.sweeps)
        borders = (inputs, *places)
        masks = tuple(
            kept(layer, sources, own)
            for layer, sources, own in zip(costs, borders, places, strict=False)
        )
        if partition.refit:
            pruned = refitted(made.network, masks, made.typical)
        else:
            pruned = made.network.with_weights(masks)
        return SplitNetwork(pruned, workers, borders, masks), total_cost(costs, inputs, places)


def input_places(network: Network, workers: int) -> Ints:
    """The worker of each input."""
    if network.worker_shares is None:
        return np.full(network.layers[0].units_in, EVERYWHERE)
    return (network.worker_shares * workers).astype(np.int64)


def layer_costs(
    network: Network, typical: Floats, partition: PartitionSpec, workers: int
) -> list[LayerCosts]:
    """The costs of each layer. A constant costs nothing where biases are fitted anew."""
    found = []
    for layer, taken in zip(network.layers, activations(network, typical), strict=False):
        counted = taken - taken.mean(axis=0) if partition.refit else taken
        found.append(
            LayerCosts.of(
                layer,
                counted,
                workers,
                partition.sparsity_cost,
                partition.crossing_cost,
                partition.prune == "weights",
            )
        )
    return found

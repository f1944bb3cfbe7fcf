"""The networks that specs name: trained, or put together from blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from topologies.spec.partition.section import (
    BlockDiagonalNetwork,
    CnnNetwork,
    MlpNetwork,
    NetworkSpec,
)
from workloads.models.partition.digits import CLASSES, PIXEL_GRID, SIDE, drawn
from workloads.models.partition.network import (
    KERNEL,
    Floats,
    Ints,
    Layer,
    Network,
    activations,
    rounded,
)
from workloads.models.partition.one_thread import one_thread
from workloads.models.partition.training import trained

_TRAINED_ON = 4000
_TESTED_ON = 2000
_TYPICAL = 1000
"""Inputs that say what a layer's units are worth, and what refitting fits."""


@dataclass(frozen=True, eq=False)
class MadeNetwork:
    """A network with `typical` inputs (samples, features), and others that it is tested on with
    their `labels` (samples,)."""

    network: Network
    typical: Floats
    tests: Floats
    labels: Ints


@lru_cache(maxsize=8)
def made_network(spec: NetworkSpec) -> MadeNetwork:
    """The network of a spec; a few seconds the first time."""
    with one_thread():
        random = np.random.default_rng(spec.seed)
        if isinstance(spec, BlockDiagonalNetwork):
            return _blocks(spec, random)
        return _trained(spec, random)


def _trained(spec: MlpNetwork | CnnNetwork, random: np.random.Generator) -> MadeNetwork:
    seen, tests = drawn(_TRAINED_ON, random), drawn(_TESTED_ON, random)
    layers: list[Layer] = []
    units, features, side = SIDE * SIDE, 1, SIDE
    if isinstance(spec, CnnNetwork):
        units = 1
        for channels in spec.channels:
            weights = _initial(random, channels, units, KERNEL * KERNEL)
            layers.append(Layer("convolution", weights, np.zeros(channels), side))
            units, side = channels, side // 2
        features = side * side
    for width in (*spec.hidden, CLASSES):
        last = len(layers) == len(spec.widths)
        weights = _initial(random, width, units, features)
        layers.append(Layer("dense", weights, np.zeros(width), last=last))
        units, features = width, 1
    shares = None if isinstance(spec, CnnNetwork) else np.arange(SIDE * SIDE) / (SIDE * SIDE)
    network = trained(Network(tuple(layers), shares), seen, random)
    return MadeNetwork(network, seen.pixels[:_TYPICAL], tests.pixels, tests.labels)


def _initial(random: np.random.Generator, neurons: int, units: int, features: int) -> Floats:
    """He et al. (arXiv 1502.01852), equation 10."""
    scale = np.sqrt(2.0 / (units * features))
    drawn_weights: Floats = random.normal(0.0, scale, (neurons, units, features))
    return drawn_weights


def _blocks(spec: BlockDiagonalNetwork, random: np.random.Generator) -> MadeNetwork:
    """Blocks of random weights; what is tested is whether the largest output is the same."""
    size = spec.width // spec.blocks
    block = np.arange(spec.width) // size
    order = random.permutation(spec.width)
    shares = block[order] / spec.blocks
    layers = []
    for number in range(spec.layers):
        weights = _initial(random, spec.width, spec.width, 1) * np.sqrt(spec.blocks)
        weights *= (block[:, None] == block[None, :])[:, :, None]
        after = random.permutation(spec.width)
        hidden = rounded(weights[after][:, order])
        biases = rounded(random.normal(0.0, 0.1, spec.width))
        layers.append(Layer("dense", hidden, biases, last=number == spec.layers - 1))
        order = after
    network = Network(tuple(layers), shares)
    inputs = random.normal(0.0, 1.0, (_TYPICAL + _TESTED_ON, spec.width))
    inputs = np.round(inputs * PIXEL_GRID) / PIXEL_GRID
    tests = inputs[_TYPICAL:]
    labels = activations(network, tests)[-1][:, :, 0].argmax(axis=1)
    return MadeNetwork(network, inputs[:_TYPICAL], tests, labels)

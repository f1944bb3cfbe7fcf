"""A feed-forward network as data, and its computing.

A layer's inputs and outputs are units: features of an image, neurons, or channels. An activation
has the shape (samples, units, features), where a channel's features are the pixels of its map, and
a neuron has one. A layer is linear in its units up to its non-linearity, so that workers can add up
what they compute of theirs and of others' units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

KERNEL = 3
"""Edge of a convolution's kernel, in pixels; maps keep their size by padding with nothing."""
GRID = 1024
"""Weights are multiples of its inverse: what the last bits of a machine's products decide while a
network is trained is rounded away, and text files hold weights exactly."""


@dataclass(frozen=True, eq=False)
class Layer:
    """`weights` (units out, units in, features in) of a dense layer, (channels out, channels in,
    KERNEL * KERNEL) of a convolution; `biases` (units out,). A convolution's maps of `side` by
    `side` pixels are halved by max pooling. `last` layers have no rectifier."""

    kind: Literal["dense", "convolution"]
    weights: Floats
    biases: Floats
    side: int = 1
    last: bool = False

    @property
    def units_out(self) -> int:
        return int(self.weights.shape[0])

    @property
    def units_in(self) -> int:
        return int(self.weights.shape[1])

    @property
    def features_in(self) -> int:
        """Elements of a unit that it takes, per sample."""
        return self.side**2 if self.kind == "convolution" else int(self.weights.shape[2])

    @property
    def flops(self) -> int:
        """Operations per sample for one unit in and one unit out: a multiplication and an addition
        for each weight, at each pixel."""
        positions = self.side**2 if self.kind == "convolution" else 1
        return 2 * int(self.weights.shape[2]) * positions


@dataclass(frozen=True, eq=False)
class Network:
    """Layers one after another. `worker_shares` (units in of the first layer,) says in which share
    of the input each of its units lies, from 0 to 1; None where every worker has the whole
    input."""

    layers: tuple[Layer, ...]
    worker_shares: Floats | None

    def with_weights(self, masks: tuple[npt.NDArray[np.bool_], ...]) -> Network:
        """The network with only those weights: a mask (units out, units in) for each layer."""
        pruned = tuple(
            replace(layer, weights=layer.weights * mask[:, :, None])
            for layer, mask in zip(self.layers, masks, strict=True)
        )
        return replace(self, layers=pruned)


def rounded(values: Floats) -> Floats:
    """On the grid of weights."""
    return np.round(values * GRID) / GRID


def activations(network: Network, inputs: Floats) -> list[Floats]:
    """The input of each layer, and the output of the last one: layers + 1 arrays (samples, units,
    features). `inputs` is (samples, features), divided evenly among the units."""
    first = network.layers[0]
    found = [inputs.reshape(len(inputs), first.units_in, first.features_in)]
    for layer in network.layers:
        found.append(given(layer, found[-1]))
    return found


def given(layer: Layer, taken: Floats) -> Floats:
    """The output of a layer for its input."""
    samples = len(taken)
    if layer.kind == "dense":
        flat = taken.reshape(samples, -1)
        before = flat @ layer.weights.reshape(layer.units_out, -1).T + layer.biases
        return (before if layer.last else np.maximum(before, 0.0))[:, :, None]
    side = layer.side
    columns = patches(taken.reshape(samples, layer.units_in, side, side))
    before = columns @ layer.weights.reshape(layer.units_out, -1).T + layer.biases
    maps = np.maximum(before, 0.0).reshape(samples, side // 2, 2, side // 2, 2, layer.units_out)
    pooled: Floats = maps.max(axis=(2, 4)).reshape(samples, -1, layer.units_out)
    return pooled.transpose(0, 2, 1)


def patches(maps: Floats) -> Floats:
    """(samples, channels, side, side) -> (samples * side * side, channels * KERNEL * KERNEL): the
    surroundings of each pixel."""
    samples, _, side, _ = maps.shape
    edge = KERNEL // 2
    padded = np.pad(maps, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (KERNEL, KERNEL), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(samples * side * side, -1)


def accuracy(network: Network, inputs: Floats, labels: Ints) -> float:
    """Share of the samples whose largest output is that of their label."""
    outputs = activations(network, inputs)[-1][:, :, 0]
    return float((outputs.argmax(axis=1) == labels).mean())

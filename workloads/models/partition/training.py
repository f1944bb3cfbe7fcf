"""Networks trained here, in seconds: plain numpy, the same weights on each machine.

The loss is the cross-entropy of a softmax, the optimiser Adam (Kingma and Ba, arXiv 1412.6980) with
decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workloads.models.partition.digits import Images
from workloads.models.partition.network import (
    KERNEL,
    Floats,
    Ints,
    Layer,
    Network,
    patches,
    rounded,
)

_BATCH = 64
_EPOCHS = 8
_RATE, _DECAY = 3e-3, 2e-2
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8
"""Adam's parameters."""


def trained(network: Network, images: Images, random: np.random.Generator) -> Network:
    """The network with weights and biases that tell the images' labels, on the grid of weights."""
    run = Training(network)
    steps = -(-len(images.labels) // _BATCH) * _EPOCHS
    done = 0
    for _ in range(_EPOCHS):
        order = random.permutation(len(images.labels))
        for first in range(0, len(order), _BATCH):
            chosen = order[first : first + _BATCH]
            done += 1
            run.step(images.pixels[chosen], images.labels[chosen], _RATE * (1 - (done - 1) / steps))
    return replace(
        network,
        layers=tuple(
            replace(layer, weights=rounded(weights), biases=rounded(biases))
            for layer, weights, biases in zip(
                network.layers, run.parameters[::2], run.parameters[1::2], strict=True
            )
        ),
    )


class Training:
    """Parameters on their way, layer after layer: weights, then biases."""

    def __init__(self, network: Network) -> None:
        self._layers = network.layers
        self.parameters = [
            values.copy() for layer in network.layers for values in (layer.weights, layer.biases)
        ]
        self._means = [np.zeros_like(p) for p in self.parameters]
        self._squares = [np.zeros_like(p) for p in self.parameters]
        self._count = 0

    def step(self, inputs: Floats, labels: Ints, rate: float) -> None:
        """Adam on one batch."""
        gradients = self.gradients(inputs, labels)
        self._count += 1
        for number, gradient in enumerate(gradients):
            mean, square = self._means[number], self._squares[number]
            mean += (1 - _FIRST) * (gradient - mean)
            square += (1 - _SECOND) * (gradient**2 - square)
            unbiased = mean / (1 - _FIRST**self._count)
            scale = np.sqrt(square / (1 - _SECOND**self._count)) + _TINY
            decay = _DECAY * self.parameters[number] if number % 2 == 0 else 0.0
            self.parameters[number] -= rate * (unbiased / scale + decay)

    def gradients(self, inputs: Floats, labels: Ints) -> list[Floats]:
        """The gradient of the mean loss by each parameter."""
        samples = len(inputs)
        taken = inputs
        kept = []
        for number, layer in enumerate(self._layers):
            weights = self.parameters[2 * number].reshape(layer.units_out, -1)
            if layer.kind == "dense":
                columns = taken.reshape(samples, -1)
                before = columns @ weights.T + self.parameters[2 * number + 1]
                taken = before if layer.last else np.maximum(before, 0.0)
                kept.append((columns, before, before))
                continue
            side = layer.side
            columns = patches(taken.reshape(samples, layer.units_in, side, side))
            before = columns @ weights.T + self.parameters[2 * number + 1]
            half = side // 2
            blocks = before.reshape(samples, half, 2, half, 2, -1)
            highest = blocks.max(axis=(2, 4), keepdims=True)
            taken = np.maximum(highest, 0.0).reshape(samples, half * half, -1).transpose(0, 2, 1)
            kept.append((columns, before, ((blocks == highest) & (blocks > 0.0)).astype(float)))
        shifted = np.exp(taken - taken.max(axis=1, keepdims=True))
        error = shifted / shifted.sum(axis=1, keepdims=True)
        error[np.arange(samples), labels] -= 1.0
        error /= samples
        return self._back(error, kept)

    def _back(self, error: Floats, kept: list[tuple[Floats, Floats, Floats]]) -> list[Floats]:
        """`error` is the loss's gradient by the last layer's output; `kept` has of each layer its
        columns, its sums, and of a convolution which pixel of each pool was the highest."""
        found: list[Floats] = []
        for number in reversed(range(len(self._layers))):
            layer, (columns, before, highest) = self._layers[number], kept[number]
            samples = len(error)
            if layer.kind == "dense":
                if not layer.last:
                    error = error.reshape(samples, -1) * (before > 0.0)
            else:
                half = layer.side // 2
                spread = error.reshape(samples, -1, half, 1, half, 1).transpose(0, 2, 3, 4, 5, 1)
                error = (spread * highest).reshape(len(columns), -1)
            weights = self.parameters[2 * number].reshape(layer.units_out, -1)
            found = [(error.T @ columns).reshape(layer.weights.shape), error.sum(axis=0), *found]
            if not number:
                break
            back = error @ weights
            if layer.kind == "dense":
                error = back.reshape(samples, -1)
            else:
                error = _summed_patches(back, samples, layer)
        return found


def _summed_patches(columns: Floats, samples: int, layer: Layer) -> Floats:
    """The reverse of `patches`: each pixel gets what all of its surroundings have for it;
    (samples, channels * side * side)."""
    side, edge = layer.side, KERNEL // 2
    parts = columns.reshape(samples, side, side, layer.units_in, KERNEL, KERNEL)
    padded = np.zeros((samples, layer.units_in, side + 2 * edge, side + 2 * edge))
    for row in range(KERNEL):
        for column in range(KERNEL):
            padded[:, :, row : row + side, column : column + side] += parts[
                :, :, :, :, row, column
            ].transpose(0, 3, 1, 2)
    return padded[:, :, edge : edge + side, edge : edge + side].reshape(samples, -1)

"""The weights that stay, found anew: by least squares against what each layer gave before.

No labels and no gradients are involved, and no weight comes back. The layers are gone through
forwards, and each is fitted on what the layers before it now give, so that it makes up for their
errors as far as it can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from workloads.models.partition.network import (
    Floats,
    Layer,
    Network,
    given,
    patches,
    rounded,
)
from workloads.models.partition.objective import Bools

_RIDGE = 1e-3
"""The pull of weights to their old values, as a share of the mean square of what they weigh:
weights that typical inputs do not decide stay as they were."""


def refitted(network: Network, masks: Sequence[Bools], typical: Floats) -> Network:
    """The network with only the weights of `masks` (units out, units in), fitted on inputs
    `typical` (samples, features)."""
    first = network.layers[0]
    before = now = typical.reshape(len(typical), first.units_in, first.features_in)
    layers = []
    for layer, mask in zip(network.layers, masks, strict=True):
        layers.append(_fitted(layer, mask, before, now))
        before, now = given(layer, before), given(layers[-1], now)
    return replace(network, layers=tuple(layers))


def _fitted(layer: Layer, mask: Bools, before: Floats, now: Floats) -> Layer:
    """The layer that makes of `now` what the given one makes of `before`."""
    weights = np.column_stack([layer.weights.reshape(layer.units_out, -1), layer.biases])
    may_be = np.column_stack(
        [np.repeat(mask, layer.weights.shape[2], axis=1), np.ones(layer.units_out, dtype=bool)]
    )
    taken = _columns(layer, now)
    squares = taken.T @ taken
    ridge = _RIDGE * np.trace(squares) / len(squares)
    squares += ridge * np.eye(len(squares))
    wanted = taken.T @ (_columns(layer, before) @ weights.T) + ridge * weights.T
    found = np.zeros_like(weights)
    alike: dict[bytes, list[int]] = defaultdict(list)
    for neuron, row in enumerate(may_be):
        alike[row.tobytes()].append(neuron)
    for rows in alike.values():
        neurons = np.array(rows)
        columns = np.flatnonzero(may_be[neurons[0]])
        among = squares[np.ix_(columns, columns)]
        found[np.ix_(neurons, columns)] = np.linalg.solve(among, wanted[np.ix_(columns, neurons)]).T
    return replace(
        layer,
        weights=rounded(found[:, :-1].reshape(layer.weights.shape)),
        biases=rounded(found[:, -1]),
    )


def _columns(layer: Layer, taken: Floats) -> Floats:
    """The factors of a neuron's weights and its bias, a row for each sample and pixel."""
    if layer.kind == "dense":
        rows = taken.reshape(len(taken), -1)
    else:
        rows = patches(taken.reshape(len(taken), layer.units_in, layer.side, layer.side))
    return np.column_stack([rows, np.ones(len(rows))])

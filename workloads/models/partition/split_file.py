"""A split network as a rank is told of it: `partition/network.json` in the run directory.

Networks are trained and split outside of the kernel; a rank gets the whole, pruned network, so that
it can check what it computes of it. Weights, biases and inputs are on grids, and stand there as
whole numbers:

    {"workers", "places": [[worker of each unit], ...], "inputs": [[pixel, ...], ...],
     "layers": [{"kind", "side", "last", "shape", "weights", "biases", "mask"}, ...]}
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from workloads.models.partition.digits import PIXEL_GRID
from workloads.models.partition.network import GRID, Floats, Layer, Network
from workloads.models.partition.split import SplitNetwork

NETWORK_FILE = "partition/network.json"
"""Below the run directory."""


def split_text(split: SplitNetwork, inputs: Floats) -> str:
    """The file, of a split and of one batch of inputs (samples, features)."""
    return json.dumps(
        {
            "workers": split.workers,
            "places": [place.tolist() for place in split.places],
            "inputs": _whole(inputs, PIXEL_GRID),
            "layers": [
                {
                    "kind": layer.kind,
                    "side": layer.side,
                    "last": layer.last,
                    "shape": layer.weights.shape,
                    "weights": _whole(layer.weights.ravel(), GRID),
                    "biases": _whole(layer.biases, GRID),
                    "mask": mask.astype(int).tolist(),
                }
                for layer, mask in zip(split.network.layers, split.masks, strict=True)
            ],
        },
        separators=(",", ":"),
    )


def read_split(run_directory: Path) -> tuple[SplitNetwork, Floats]:
    """The split and its inputs (samples, features). Raises OSError, ValueError, KeyError."""
    read = json.loads((run_directory / NETWORK_FILE).read_text())
    layers = tuple(
        Layer(
            layer["kind"],
            np.array(layer["weights"], dtype=np.float64).reshape(layer["shape"]) / GRID,
            np.array(layer["biases"], dtype=np.float64) / GRID,
            layer["side"],
            layer["last"],
        )
        for layer in read["layers"]
    )
    split = SplitNetwork(
        Network(layers, None),
        read["workers"],
        tuple(np.array(place, dtype=np.int64) for place in read["places"]),
        tuple(np.array(layer["mask"], dtype=np.bool_) for layer in read["layers"]),
    )
    return split, np.array(read["inputs"], dtype=np.float64) / PIXEL_GRID


def _whole(values: Floats, grid: int) -> list[object]:
    found: list[object] = np.rint(values * grid).astype(np.int64).tolist()
    return found

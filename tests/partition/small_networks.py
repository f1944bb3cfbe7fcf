"""Networks small enough for any test."""

from __future__ import annotations

from typing import Any

import numpy as np

from topologies.spec.partition.section import PartitionedInferenceWorkload
from workloads.models.partition.network import Layer, Network


def workload(ranks: int = 4, **keys: Any) -> PartitionedInferenceWorkload:
    """A block-diagonal network unless the keys say otherwise."""
    raw = {
        "kind": "partitioned_inference",
        "ranks": ranks,
        "network": {"kind": "block-diagonal", "blocks": ranks, "width": 8 * ranks},
        "batch_size": 4,
    } | keys
    return PartitionedInferenceWorkload.model_validate(raw)


def convolutional(seed: int = 0) -> Network:
    """Two convolutions over two channels of 8x8 pixels, and two dense layers."""
    random = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.round(random.normal(0, 0.4, shape) * 64) / 64

    return Network(
        (
            Layer("convolution", weights(4, 2, 9), weights(4), 8),
            Layer("convolution", weights(6, 4, 9), weights(6), 4),
            Layer("dense", weights(5, 6, 4), weights(5)),
            Layer("dense", weights(3, 5, 1), weights(3), last=True),
        ),
        None,
    )

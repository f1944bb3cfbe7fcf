"""The buckets in which a backward pass sends gradients, as PyTorch's DDP does (Li et al., VLDB
2020), but of whole layers."""

from __future__ import annotations

from collections.abc import Iterable


def gradient_buckets(parameters: Iterable[int], capacity: int) -> list[int]:
    """Parameters of each bucket in the order of sending, from those of the layers in the order of
    the backward pass: a bucket goes out once it holds `capacity` parameters, the last one at the
    end.
    """
    buckets, filled = [], 0
    for count in parameters:
        filled += count
        if filled >= capacity:
            buckets.append(filled)
            filled = 0
    return [*buckets, filled] if filled else buckets

"""Tensors whose right result is known in closed form, so that every rank can check what it
received.

Reductions: rank r contributes (index + r) mod 3, so sums are small integers, exact in every
dtype that Gloo reduces (bfloat16 is exact up to 256, hence up to 128 ranks), and a rank missing
or counted twice shows in two of every three elements. Exchanges: a block from rank s to rank d
holds a code of (s, d), so that a swapped, lost or repeated block shows.

Every element is checked, without a second tensor of the same size: fresh memory is what costs most
in the virtual kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_PERIOD = 3
_CODES = 251  # the largest prime below 256: every code is exact in bfloat16


class WrongResult(RuntimeError):
    """A collective delivered other numbers than it should have."""


def reduction_input(count: int, rank: int, dtype: torch.dtype) -> torch.Tensor:
    """What `rank` contributes to a reduction of `count` elements."""
    x = torch.empty(count, dtype=dtype)
    for phase in range(_PERIOD):
        x[phase::_PERIOD] = (phase + rank) % _PERIOD
    return x


def check_reduction(id: str, got: torch.Tensor, ranks: int, offset: int = 0) -> None:
    """Raise WrongResult unless `got` is the sum over `ranks` ranks of the elements from
    `offset`.
    """
    for phase in range(_PERIOD):
        expected = sum((phase + offset + rank) % _PERIOD for rank in range(ranks))
        _check_constant(id, got[phase::_PERIOD], expected, phase, _PERIOD)


def block_code(source: int, destination: int) -> int:
    """The number that fills a block from `source` to `destination`."""
    return (source * 31 + destination * 7 + 1) % _CODES


def blocks(count: int, codes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Blocks of `count` elements, one per code."""
    x = torch.empty(len(codes) * count, dtype=dtype)
    for index, code in enumerate(codes):
        x[index * count : (index + 1) * count] = code
    return x


def check_blocks(id: str, got: torch.Tensor, codes: Sequence[int]) -> None:
    """Raise WrongResult unless `got` is one equal block per code."""
    count = got.numel() // len(codes)
    for index, code in enumerate(codes):
        _check_constant(id, got[index * count : (index + 1) * count], code, index * count, 1)


def _check_constant(id: str, got: torch.Tensor, expected: int, first: int, step: int) -> None:
    """Raise WrongResult, naming the first element that differs, unless all are `expected`."""
    if got.numel() == 0 or (got.min().item() == expected and got.max().item() == expected):
        return
    at = int((got != expected).nonzero()[0])
    raise WrongResult(f"{id}: element {first + at * step} is {got[at].item()}, expected {expected}")


def codes_from(source: int, ranks: int) -> list[int]:
    """Codes of the blocks that `source` sends to each of `ranks` ranks."""
    return [block_code(source, destination) for destination in range(ranks)]


def codes_to(destination: int, ranks: int) -> list[int]:
    """Codes of the blocks that `destination` gets from each of `ranks` ranks."""
    return [block_code(source, destination) for source in range(ranks)]

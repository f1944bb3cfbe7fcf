"""Tensors whose right result is known in closed form, so that every rank can check what it
received.

Reductions: rank r contributes (index + r) mod 3, so sums are small integers, exact in every
dtype that Gloo reduces (bfloat16 is exact up to 256, hence up to 128 ranks), and a rank missing
or counted twice shows in two of every three elements. Exchanges: a block from rank s to rank d
holds a code of (s, d), so that a swapped, lost or repeated block shows.

Every element is checked, without a second tensor of the same size: fresh memory is what costs most
in the virtual kernel. Tensors are filled and compared in rows, which torch does with vector
instructions: a tenth of the time of every third element at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_PERIOD = 3
_ROW = 256 * _PERIOD
_CODES = 251  # the largest prime below 256: every code is exact in bfloat16


class WrongResult(RuntimeError):
    """A collective delivered other numbers than it should have."""


def reduction_input(count: int, rank: int, dtype: torch.dtype) -> torch.Tensor:
    """What `rank` contributes to a reduction of `count` elements."""
    x = torch.empty(count, dtype=dtype)
    row = _row([(phase + rank) % _PERIOD for phase in range(_PERIOD)], dtype)
    rows, rest = _in_rows(x)
    rows[:] = row
    rest[:] = row[: rest.numel()]
    return x


def check_reduction(id: str, got: torch.Tensor, ranks: int, offset: int = 0) -> None:
    """Raise WrongResult unless `got` is the sum over `ranks` ranks of the elements from
    `offset`.
    """
    sums = [
        sum((phase + offset + rank) % _PERIOD for rank in range(ranks)) for phase in range(_PERIOD)
    ]
    row = _row(sums, got.dtype)
    rows, rest = _in_rows(got)
    right = torch.equal(rest, row[: rest.numel()])
    if rows.numel() > 0:
        right = right and torch.equal(rows.amin(0), row) and torch.equal(rows.amax(0), row)
    if not right:  # slowly, for the element's number
        for phase in range(_PERIOD):
            _check_constant(id, got[phase::_PERIOD], sums[phase], phase, _PERIOD)


def _row(values: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """`values`, of one period, repeated to a row."""
    return torch.tensor(values, dtype=dtype).repeat(_ROW // _PERIOD)


def _in_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of `x`: its whole rows, and what is left."""
    whole = x.numel() // _ROW * _ROW
    return x[:whole].view(-1, _ROW), x[whole:]


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

"""Tensors whose right result is known in closed form, so that every rank can check what it
received.

Reductions: rank r contributes (index + r) mod 3, so sums are small integers, exact in every
dtype that Gloo reduces (bfloat16 is exact up to 256, hence up to 128 ranks), and a rank missing
or counted twice shows in two of every three elements. Exchanges: a block from rank s to rank d
holds a code of (s, d), so that a swapped, lost or repeated block shows.

Every element is checked, without a second tensor of the same size: fresh memory is what costs most
in the virtual kernel. Tensors are filled in rows, which torch does with vector instructions: a
tenth of the time of every third element at a time. They are checked by comparing them with
themselves some elements on, for which libc takes a quarter of the time of torch's minimum and
maximum.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

_PERIOD = 3
_ROW = 256 * _PERIOD
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_CODES = 251  # the largest prime below 256: every code is exact in bfloat16


class WrongResult(RuntimeError):
    """A collective delivered other numbers than it should have."""


def reduction_input(count: int, rank: int, dtype: torch.dtype) -> torch.Tensor:
    """What `rank` contributes to a reduction of `count` elements."""
    x = torch.empty(count, dtype=dtype)
    period = [(phase + rank) % _PERIOD for phase in range(_PERIOD)]
    row = torch.tensor(period, dtype=dtype).repeat(_ROW // _PERIOD)
    whole = count // _ROW * _ROW
    x[:whole].view(-1, _ROW)[:] = row
    x[whole:] = row[: count - whole]
    return x


def check_reduction(id: str, got: torch.Tensor, ranks: int, offset: int = 0) -> None:
    """Raise WrongResult unless `got` is the sum over `ranks` ranks of the elements from
    `offset`.
    """
    sums = [
        sum((phase + offset + rank) % _PERIOD for rank in range(ranks)) for phase in range(_PERIOD)
    ]
    _check_repeats(id, got, sums, 0)


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
        _check_repeats(id, got[index * count : (index + 1) * count], [code], index * count)


def _check_repeats(id: str, got: torch.Tensor, period: Sequence[int], first: int) -> None:
    """Raise WrongResult unless `got`, which is contiguous, is `period` again and again, naming the
    first element that differs, counted from `first`."""
    length = len(period)
    if got[:length].tolist() == list(period)[: got.numel()] and _repeats(got, length):
        return
    expected = torch.tensor(period, dtype=got.dtype).repeat(-(-got.numel() // length))
    wrong = (got != expected[: got.numel()]).nonzero()
    if wrong.numel() > 0:
        at = int(wrong[0])
        raise WrongResult(
            f"{id}: element {first + at} is {got[at].item()}, expected {period[at % length]}"
        )


def _repeats(x: torch.Tensor, length: int) -> bool:
    """Whether the memory of `x` is the same `length` elements again and again."""
    step_bytes = length * x.element_size()
    size_bytes = x.numel() * x.element_size() - step_bytes
    address = x.data_ptr()
    return size_bytes <= 0 or not _memcmp(address, address + step_bytes, size_bytes)


def codes_from(source: int, ranks: int) -> list[int]:
    """Codes of the blocks that `source` sends to each of `ranks` ranks."""
    return [block_code(source, destination) for destination in range(ranks)]


def codes_to(destination: int, ranks: int) -> list[int]:
    """Codes of the blocks that `destination` gets from each of `ranks` ranks."""
    return [block_code(source, destination) for source in range(ranks)]

"""Tensors whose right result is known in closed form, so that every rank can check what it
received.

Sums and exclusive ors: rank r contributes (index + r) mod 3, so results are small integers, exact
in every dtype that Gloo reduces (bfloat16 is exact up to 256, hence up to 128 ranks), and a rank
missing or counted twice shows in two of every three elements. Where a contribution that is counted
twice makes no difference (min, max, and, or), each of n ranks alone decides every n-th element, so
that one that is missing shows there. The result is 4 + index mod 3.

Pairs (minloc, maxloc): the rank that decides an element and those after it have the same number,
and each its rank as the index, so that the result's index is that of the one that decides.

Exchanges: a block from rank s to rank d holds a code of (s, d), so that a swapped, lost or repeated
block shows.

Every element is checked, without a second tensor of the same size: fresh memory is what costs most
in the virtual kernel. Tensors are filled in rows, which torch does with vector instructions: a
tenth of the time of every third element at a time. They are checked by comparing them with
themselves some elements on, for which libc takes a quarter of the time of torch's minimum and
maximum.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, xor

import torch

from topologies.spec.workload_types import ReduceOp

_PERIOD = 3
_ROW = 256 * _PERIOD
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_CODES = 251  # the largest prime below 256: every code is exact in bfloat16


# A rank's contribution where another one decides, by that one's contribution there.
_OF_OTHERS: dict[ReduceOp, Callable[[int], int]] = {
    "min": lambda result: result + 1,
    "max": lambda result: result - 1,
    "band": lambda result: result | 2 * _DECIDED,
    "bor": lambda result: result - _DECIDED,
}
_DECIDED = 4

_PAIRS: dict[ReduceOp, int] = {"minloc": 1, "maxloc": -1}
"""The distance of numbers of ranks that do not decide."""


class WrongResult(RuntimeError):
    """A collective delivered other numbers than it should have."""


def reduction_input(
    count: int, rank: int, ranks: int, dtype: torch.dtype, op: ReduceOp = "sum"
) -> torch.Tensor:
    """The contribution of `rank` of `ranks` to a reduction of `count` elements."""
    if op in _PAIRS:
        period = [_pair(op, index, rank, ranks, dtype) for index in range(_PERIOD * ranks)]
        row = torch.tensor(period, dtype=torch.int64)
        return row.repeat(-(-count // len(period)))[:count].clone().view(dtype)
    others = _OF_OTHERS.get(op)
    if others is None:
        period = [(phase + rank) % _PERIOD for phase in range(_PERIOD)]
    else:
        mine = [index % ranks == rank for index in range(_PERIOD * ranks)]
        results = [_DECIDED + index % _PERIOD for index in range(len(mine))]
        period = [
            result if decides else others(result)
            for result, decides in zip(results, mine, strict=True)
        ]
    x = torch.empty(count, dtype=dtype)
    row = torch.tensor(period, dtype=dtype).repeat(-(-_ROW // len(period)))
    whole = count // row.numel() * row.numel()
    x[:whole].view(-1, row.numel())[:] = row
    x[whole:] = row[: count - whole]
    return x


def check_reduction(
    id: str, got: torch.Tensor, ranks: int, op: ReduceOp = "sum", offset: int = 0
) -> None:
    """Raise WrongResult unless `got` is what the contributions of `ranks` ranks reduce to, from the
    element `offset` on.
    """
    if op in _PAIRS:
        whole = range(offset, offset + _PERIOD * ranks)
        expected = [_pair(op, at, at % ranks, ranks, got.dtype) for at in whole]
        _check_repeats(id, got.view(torch.int64), expected, 0)
        return
    if op in _OF_OTHERS:
        expected = [_DECIDED + (phase + offset) % _PERIOD for phase in range(_PERIOD)]
    else:
        join = xor if op == "bxor" else add
        expected = [
            reduce(join, ((phase + offset + rank) % _PERIOD for rank in range(ranks)))
            for phase in range(_PERIOD)
        ]
    _check_repeats(id, got, expected, 0)


def _pair(op: ReduceOp, index: int, rank: int, ranks: int, dtype: torch.dtype) -> int:
    """The contribution of a rank to an element of pairs, as the 64 bits that hold it."""
    number = _DECIDED + index % _PERIOD
    if rank < index % ranks:
        number += _PAIRS[op]
    form = "<fi" if dtype.is_floating_point else "<ii"
    (bits,) = struct.unpack("<q", struct.pack(form, number, rank))
    return int(bits)


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

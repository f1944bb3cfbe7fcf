"""The tensors of a rank's collectives: memory of its own, with numbers that are checked, or memory
that all share, whose contents nobody looks at."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import Protocol

import torch

from topologies.spec.workload_types import Payload, ReduceOp
from workloads.execution.payload import numbers
from workloads.execution.programs.reductions import REDUCTIONS, Combine

_PIECE_BYTES = 2**20
"""Small enough to stay in a processor's cache."""

_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000  # mman.h, of x86
_PROTECTION = mmap.PROT_READ | mmap.PROT_WRITE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]


class Tensors(Protocol):
    """Makes the tensors of collectives, and does what ranks do with them outside of Gloo."""

    @property
    def checked(self) -> bool:
        """Whether what arrives is to be checked."""

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor with any contents."""

    def reduction_input(
        self, count: int, rank: int, ranks: int, dtype: torch.dtype, op: ReduceOp
    ) -> torch.Tensor:
        """As `numbers.reduction_input`."""

    def blocks(self, count: int, codes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """As `numbers.blocks`."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy `source` into `target`."""

    def combine(self, op: ReduceOp) -> Combine:
        """A function that reduces its second argument into its first."""


class OwnTensors:
    """Tensors with memory of their own, and numbers that the other end knows."""

    checked = True

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(count, dtype=dtype)

    def reduction_input(
        self, count: int, rank: int, ranks: int, dtype: torch.dtype, op: ReduceOp
    ) -> torch.Tensor:
        return numbers.reduction_input(count, rank, ranks, dtype, op)

    def blocks(self, count: int, codes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return numbers.blocks(count, codes, dtype)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source)

    def combine(self, op: ReduceOp) -> Combine:
        return REDUCTIONS[op].combine


class SharedTensors:
    """Tensors that all begin at the same byte of one piece of memory, which is mapped again and
    again, as often as the longest of them needs. It holds zeros: what ranks send, and sums too.

    Processes that are forked from one that has called `shared_piece` share the piece.
    """

    checked = False

    def __init__(self) -> None:
        self._lock = Lock()
        self._mapped_bytes = 0
        self._address = 0

    def empty(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        if not count:
            return torch.empty(0, dtype=dtype)
        size_bytes = count * dtype.itemsize
        with self._lock:
            if size_bytes > self._mapped_bytes:
                # Those before stay: there may be tensors in them.
                self._address, self._mapped_bytes = _map(size_bytes)
            whole = (ctypes.c_char * size_bytes).from_address(self._address)
        return torch.frombuffer(whole, dtype=dtype)

    def reduction_input(
        self, count: int, rank: int, ranks: int, dtype: torch.dtype, op: ReduceOp
    ) -> torch.Tensor:
        return self.empty(count, dtype)

    def blocks(self, count: int, codes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return self.empty(count * len(codes), dtype)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Nobody looks at it."""

    def combine(self, op: ReduceOp) -> Combine:
        return self.copy


OWN_TENSORS = OwnTensors()


@cache
def shared_piece() -> int:
    """The file in memory of this process's `SharedTensors`, which its forks share."""
    descriptor = os.memfd_create("payload")
    os.truncate(descriptor, _PIECE_BYTES)
    return descriptor


@cache
def _shared_tensors() -> SharedTensors:
    return SharedTensors()


def tensors_of(kind: Payload) -> Tensors:
    """The tensors of a spec's `payload`; the ranks of a process have the same."""
    return _shared_tensors() if kind == "timing" else OWN_TENSORS


def _map(size_bytes: int) -> tuple[int, int]:
    """Room for so many bytes, and how many it is for. Raises OSError."""
    pieces = -(-size_bytes // _PIECE_BYTES)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    address = _mapped(0, pieces * _PIECE_BYTES, flags, -1)
    for piece in range(pieces):
        at = address + piece * _PIECE_BYTES
        _mapped(at, _PIECE_BYTES, mmap.MAP_SHARED | _MAP_FIXED, shared_piece())
    return address, pieces * _PIECE_BYTES


def _mapped(at: int, size_bytes: int, flags: int, descriptor: int) -> int:
    address: int = _libc.mmap(at, size_bytes, _PROTECTION, flags, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return address

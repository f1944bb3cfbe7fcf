"""Named columns of numbers, as they pass the pipe to the engine and back (engine/README.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from simulation.failure import SimulationError

_MAGIC = b"GWCOLS01"
_HEAD = struct.Struct("<24sQQ")
_TYPES: tuple[np.dtype[Any], ...] = (np.dtype("<i8"), np.dtype("<i4"), np.dtype("<f8"))

Column = npt.NDArray[Any]
"""One dimension of 64-bit integers, 32-bit integers, or 64-bit floating-point numbers."""


def pack(columns: Mapping[str, Column]) -> Iterator[bytes | memoryview]:
    """The bytes of columns, part by part. Raises ValueError for a name that is too long or a type
    that columns cannot have."""
    yield _MAGIC
    for name, column in columns.items():
        encoded = name.encode()
        if not 0 < len(encoded) < 24:
            raise ValueError(f"found a column named {name!r}, allowed 1 to 23 bytes")
        if column.dtype not in _TYPES:
            raise ValueError(f"{name}: found numbers of type {column.dtype}")
        yield _HEAD.pack(encoded, _TYPES.index(column.dtype), len(column))
        if len(column):
            yield np.ascontiguousarray(column).data.cast("B")
        yield bytes(-column.nbytes % 8)
    yield _HEAD.pack(b"", 0, 0)


def unpack(data: bytes) -> dict[str, Column]:
    """Columns from their bytes. Raises SimulationError for bytes that are none."""
    if not data.startswith(_MAGIC):
        raise SimulationError(f"expected a timeline that begins with {_MAGIC.decode()}")
    found: dict[str, Column] = {}
    at = len(_MAGIC)
    while at + _HEAD.size <= len(data):
        name, kind, count = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if not name.strip(b"\0"):
            return found
        dtype = _TYPES[kind]
        if at + count * dtype.itemsize > len(data):
            break
        found[name.rstrip(b"\0").decode()] = np.frombuffer(data, dtype, count, at)
        at += -(-count * dtype.itemsize // 8) * 8
    raise SimulationError("the timeline is cut off")

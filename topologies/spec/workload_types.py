"""Numbers and words that workloads share."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from topologies.spec.fabric_section import Integer

PlainCollective = Literal["all_reduce", "all_to_all", "all_gather", "reduce_scatter"]
"""Collectives without a root, by torch's names."""

Dtype = Literal["float16", "bfloat16", "float32"]
"""The types that models compute in."""

IntegerType = Literal["int16", "int32", "int64"]
ElementType = Literal["int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
"""The types that collectives move, by torch's names."""

BitwiseOp = Literal["band", "bor", "bxor"]
PairOp = Literal["minloc", "maxloc"]
"""Those of MPI: of pairs of a number and an index, the pair with the least or greatest number; of
equal ones that with the lower index."""

PAIR_TYPES = ("int64", "float64")
"""The types of a pair: a number of 32 bits, an integer or a float as the type says, and an index of
32 bits (MPI_2INT, MPI_FLOAT_INT)."""

ReduceOp = Literal["sum", "min", "max", "band", "bor", "bxor", "minloc", "maxloc"]
"""How collectives reduce, by the names of torch's ReduceOp, and pairs by MPI's."""
Payload = Literal["checked", "timing"]
"""Whether every rank checks the numbers that it gets."""
Ranks = Annotated[Integer, Field(ge=1, le=4096)]
SeveralRanks = Annotated[Integer, Field(ge=2, le=4096)]
Iterations = Annotated[Integer, Field(ge=1, le=1_000_000)]

MAX_SIZE_BYTES = 2**36

GroupName: TypeAlias = Literal["world", "tensor", "data", "model"]
"""The groups of ranks in which steps run collectives; `world` is all ranks."""

ITEM_BYTES: dict[str, int] = {
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
"""The bytes of an element."""

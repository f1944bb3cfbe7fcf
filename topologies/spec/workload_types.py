"""Numbers and words that workloads share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from topologies.spec.fabric_section import Integer

PlainCollective = Literal["all_reduce", "all_to_all", "all_gather", "reduce_scatter"]
"""Collectives without a root, by torch's names."""

Dtype = Literal["float16", "bfloat16", "float32"]
"""What models compute in."""

IntegerType = Literal["int16", "int32", "int64"]
ElementType = Literal["int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
"""What collectives move, by torch's names."""

BitwiseOp = Literal["band", "bor", "bxor"]
ReduceOp = Literal["sum", "min", "max", "band", "bor", "bxor"]
"""How collectives reduce, by the names of torch's ReduceOp."""
Payload = Literal["checked", "timing"]
"""Whether every rank checks the numbers that it gets, or nobody looks at them."""
Ranks = Annotated[Integer, Field(ge=2, le=4096)]
Iterations = Annotated[Integer, Field(ge=1, le=1_000_000)]

MAX_SIZE_BYTES = 2**36

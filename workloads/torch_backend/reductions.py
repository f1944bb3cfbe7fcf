"""torch's reductions, as programs do them at a receiver."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from collectives.kinds import Kind
from workloads.execution.programs.reductions import REDUCTIONS, SUM, Combine


class Unsupported(RuntimeError):
    """A call that the backend cannot do, by its name, with what is allowed."""


_COMBINE: dict[object, Combine] = {
    each.torch_op: each.combine for each in REDUCTIONS.values() if each.torch_op is not None
}
_COMBINE[dist.ReduceOp.PRODUCT] = torch.Tensor.mul_
_NAMES: dict[str, object] = {name: each.torch_op for name, each in REDUCTIONS.items()}
_NAMES["product"] = dist.ReduceOp.PRODUCT
_COMBINED = "SUM, PRODUCT, MAX, MIN, BAND, BOR, BXOR"


def name_of(op: object) -> Any:
    """torch's name for a reduction, sum where nothing is reduced."""
    return next((name for name, known in _NAMES.items() if op is not None and op == known), "sum")


def combine_by_name(name: str) -> Combine:
    """A function for what a receiver does in a reduction of that name."""
    op = _NAMES[name]
    return next(combine for known, combine in _COMBINE.items() if op == known)


def combine_of(kind: Kind, op: object) -> Combine:
    """A function for what a receiver does in a reduction by torch's `op`, which is None for kinds
    that do not reduce. Raises Unsupported."""
    if op is None:
        return SUM
    for known, combine in _COMBINE.items():
        if op == known:
            return combine
    # A ReduceOp shows itself as an object's address.
    named = [name for name, known in dist.ReduceOp.RedOpType.__members__.items() if op == known]
    raise Unsupported(f"{kind} with {named[0] if named else op}: allowed: {_COMBINED}")

"""How collectives reduce: by torch's own operation, and at a receiver of a program's message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from topologies.spec.workload_types import ReduceOp

Combine: TypeAlias = Callable[[torch.Tensor, torch.Tensor], object]
"""Reduces its second argument into its first."""


def _in_place(function: Callable[..., torch.Tensor]) -> Combine:
    def combine(target: torch.Tensor, other: torch.Tensor) -> None:
        function(target, other, out=target)

    return combine


@dataclass(frozen=True, slots=True)
class Reduction:
    """One operation: torch's, by its ReduceOp, and what a rank does with what it receives."""

    torch_op: Any
    combine: Combine


SUM: Combine = torch.Tensor.add_

REDUCTIONS: dict[ReduceOp, Reduction] = {
    "sum": Reduction(dist.ReduceOp.SUM, SUM),
    "min": Reduction(dist.ReduceOp.MIN, _in_place(torch.minimum)),
    "max": Reduction(dist.ReduceOp.MAX, _in_place(torch.maximum)),
    "band": Reduction(dist.ReduceOp.BAND, torch.Tensor.bitwise_and_),
    "bor": Reduction(dist.ReduceOp.BOR, torch.Tensor.bitwise_or_),
    "bxor": Reduction(dist.ReduceOp.BXOR, torch.Tensor.bitwise_xor_),
}

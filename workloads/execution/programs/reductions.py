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


def _of_pairs(first: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Combine:
    """Keeps of two pairs the one whose number goes `first`; of equal numbers the lower index."""

    def combine(target: torch.Tensor, other: torch.Tensor) -> None:
        (mine, at), (theirs, at_theirs) = numbers_and_indices(target), numbers_and_indices(other)
        taken = first(theirs, mine) | ((theirs == mine) & (at_theirs < at))
        target.copy_(torch.where(taken, other, target))

    return combine


def numbers_and_indices(pairs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of what the elements of a tensor hold, each a number and an index of 32 bits."""
    number = torch.float32 if pairs.dtype.is_floating_point else torch.int32
    return pairs.view(number).view(-1, 2)[:, 0], pairs.view(torch.int32).view(-1, 2)[:, 1]


@dataclass(frozen=True, slots=True)
class Reduction:
    """One operation: torch's, by its ReduceOp (None: it has none), and what a rank does with what
    it receives."""

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
    "minloc": Reduction(None, _of_pairs(torch.lt)),
    "maxloc": Reduction(None, _of_pairs(torch.gt)),
}

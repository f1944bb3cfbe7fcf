"""One thing that a machine has or lacks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """`found` None: could not be found out (`detail` says why). `cost` is the loss without it,
    `remedy` the command that gets it."""

    group: str
    name: str
    found: bool | None
    detail: str
    cost: str
    remedy: str

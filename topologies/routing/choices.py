"""How switches choose next hops by more than a hash, in the numbers that the virtual kernel and the
packet engine are told (`emulator/kernel/gwroute.h`)."""

from __future__ import annotations

from typing import assert_never, get_args

from topologies.fabrics.port_seed import port_seed
from topologies.spec.routing_section import (
    Adaptive,
    Choose,
    Ecmp,
    Flowlet,
    NextHopChoice,
    Source,
    Spray,
    Srv6,
    Weighted,
)

MOST_NEXT_HOPS = 64
"""GWROUTE_MOST_HOPS: equal next hops that a switch chooses among."""

_BY = {name: number for number, name in enumerate(get_args(Choose))}


def choice_settings(
    choice: NextHopChoice, seed: int, switch: str, stride: int = 1
) -> tuple[int, ...] | None:
    """struct gwroute_settings of a switch: kind, by, seed, gap_ns, threshold_bytes, hold_ns and the
    stride of its digit (`Routes.strides`); None where packets are hashed. Random numbers differ
    from switch to switch."""
    own = port_seed(seed, switch)
    match choice:
        case Ecmp() | Weighted() | Srv6():
            return None
        case Spray():
            return 1, _BY[choice.choose], own, 0, 0, 0, 1
        case Flowlet():
            return 2, _BY[choice.choose], own, choice.gap_ns, 0, 0, 1
        case Adaptive():
            return 3, _BY["least-queue"], own, 0, choice.threshold_bytes, choice.hold_ns, 1
        case Source():
            return 4, 0, 0, 0, 0, 0, stride
        case _:
            assert_never(choice)

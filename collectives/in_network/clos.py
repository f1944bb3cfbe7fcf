"""Switches of reducing microswitches: FRED_m(P), and how flows are routed through one.

FRED_m(P) is a Clos network (m, 2, r) with P = 2r ports, or 2r + 1 (Rashidi et al., ISCA 2025):
r microswitches of two inputs and m outputs, m switches FRED_m(r) in the middle, or FRED_m(r + 1)
for the odd port, r microswitches of m inputs and two outputs. FRED_m(2) is one microswitch. An
input microswitch can reduce its two inputs, an output microswitch can copy to both outputs.

A flow is reduced over its inputs and copied to its outputs. Flows are routed before anything runs:
two that share a microswitch must take different switches of the middle, so that these are colours
of a graph whose edges are shared microswitches; then each middle switch is routed the same way.
Flows for which there are not enough colours conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

_MOST_COLOURINGS = 200
"""How many colourings of a stage are tried before its middle switches are given up."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow that comes in at `inputs`, is reduced, and goes out at each of `outputs`. For
    all-reduces both are the same; a multicast has one input, a reduce one output."""

    name: str
    inputs: frozenset[int]
    outputs: frozenset[int]


@dataclass(frozen=True, slots=True)
class Route:
    """How flows go through a switch of so many ports: the `middle` switch of each, by name, and the
    middle switches themselves, those that carry something. `reducing` and `copying` are the
    microswitches that do so."""

    ports: int
    middle: tuple[tuple[str, int], ...] = ()
    inside: tuple[tuple[int, Route], ...] = ()
    reducing: tuple[int, ...] = ()
    copying: tuple[int, ...] = ()


class Conflict(ValueError):
    """Flows that cannot go at once; `flows` are their names, `ports` those of the switch inside of
    which they conflict."""

    def __init__(self, flows: Sequence[str], ports: int, middles: int) -> None:
        self.flows = tuple(flows)
        self.ports = ports
        named = ", ".join(flows)
        super().__init__(
            f"{named} share microswitches of FRED_{middles}({ports}) and would need more than "
            f"{middles} switches in the middle"
        )


@lru_cache(maxsize=4096)
def route(ports: int, middles: int, flows: tuple[Flow, ...]) -> Route:
    """Flows through FRED_m(P), whose ports are numbered from 0. Raises Conflict, and ValueError for
    flows that share a port or name one that there is not."""
    _check(ports, flows)
    if ports <= 2:
        reducing = any(len(flow.inputs) > 1 for flow in flows)
        copying = any(len(flow.outputs) > 1 for flow in flows)
        return Route(ports, (), (), (0,) * reducing, (0,) * copying)
    failed: Conflict | None = None
    for colours in islice(_colourings(flows, middles), _MOST_COLOURINGS):
        try:
            inside = tuple(
                (middle, route((ports + 1) // 2, middles, _through(flows, colours, middle)))
                for middle in sorted({*colours})
            )
        except Conflict as conflict:
            failed = failed or conflict
            continue
        return Route(
            ports,
            tuple((flow.name, colour) for flow, colour in zip(flows, colours, strict=True)),
            inside,
            _pairs([flow.inputs for flow in flows]),
            _pairs([flow.outputs for flow in flows]),
        )
    raise failed or Conflict(_too_many(flows, middles), ports, middles)


def _check(ports: int, flows: Sequence[Flow]) -> None:
    for side in ("inputs", "outputs"):
        used: set[int] = set()
        for flow in flows:
            of_flow: frozenset[int] = getattr(flow, side)
            if not of_flow or min(of_flow) < 0 or max(of_flow) >= ports:
                raise ValueError(f"{flow.name}: expected {side} from 0 to {ports - 1}")
            if used & of_flow:
                raise ValueError(f"{flow.name} shares a port with another flow: {used & of_flow}")
            used |= of_flow


def _meet(one: Flow, other: Flow) -> bool:
    """Whether two flows share a microswitch. The odd port has none, and is nobody else's."""
    return any(
        {port // 2 for port in mine} & {port // 2 for port in others}
        for mine, others in ((one.inputs, other.inputs), (one.outputs, other.outputs))
    )


def _colourings(flows: Sequence[Flow], colours: int) -> Iterator[tuple[int, ...]]:
    """All ways to give flows that meet different colours, but for the names of colours; hardest
    flows first, so that there is little to try."""
    meets = [
        {j for j, b in enumerate(flows) if j != i and _meet(a, b)} for i, a in enumerate(flows)
    ]
    order = sorted(range(len(flows)), key=lambda i: (-len(meets[i]), i))
    given: dict[int, int] = {}

    def give(place: int) -> Iterator[tuple[int, ...]]:
        if place == len(order):
            yield tuple(given[i] for i in range(len(flows)))
            return
        flow = order[place]
        taken = {given[other] for other in meets[flow] if other in given}
        known = max(given.values(), default=-1)
        for colour in range(min(colours, known + 2)):
            if colour not in taken:
                given[flow] = colour
                yield from give(place + 1)
                del given[flow]

    yield from give(0)


def _too_many(flows: Sequence[Flow], colours: int) -> list[str]:
    """Flows of which each meets as many others as there are colours, or more."""
    left = list(flows)
    while True:
        kept = [a for a in left if sum(_meet(a, b) for b in left if b is not a) >= colours]
        if len(kept) == len(left):
            return [flow.name for flow in left]
        left = kept


def _through(flows: Sequence[Flow], colours: Sequence[int], middle: int) -> tuple[Flow, ...]:
    """The flows of a middle switch: its port i is joined to microswitch i."""
    return tuple(
        Flow(
            flow.name,
            frozenset(port // 2 for port in flow.inputs),
            frozenset(port // 2 for port in flow.outputs),
        )
        for flow, colour in zip(flows, colours, strict=True)
        if colour == middle
    )


def _pairs(sides: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """The microswitches both of whose ports belong to one flow."""
    found = {port // 2 for side in sides for port in side if port % 2 and port - 1 in side}
    return tuple(sorted(found))

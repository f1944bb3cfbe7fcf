"""The parts of a run that a seed varies, as a real cluster does: a spec, and a spec with other
faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topologies.spec.spec import Spec, parse_dict
from topologies.units import format_signed_time, format_size, format_time

Fault = dict[str, Any]

_LONGEST_LATE_NS = 500_000_000
_SLOWEST = 10
"""Links are up to so many times as long."""
_SOON_NS = 1_000
_CLOCK_DECADES = (-6, 1)
"""Clocks are up to ten seconds off, alike often by microseconds as by seconds."""
_MOST_DRIFT_PPM = 100
"""As crystals that are out of their tolerance."""


@dataclass(frozen=True, slots=True)
class Within:
    """Faults that happen once begin within `span_ns` of the programs' start, or before one of the
    first `operations` that a rank posts."""

    span_ns: int
    operations: int = 1000


Drawer = Callable[[random.Random, Spec, Within], list[Fault]]


@dataclass(frozen=True, slots=True)
class Orders:
    """The seeds that order who is ready at one time: ranks, and threads of a process; 0: as Linux
    has it."""

    ranks: int = 0
    threads: int = 0


def _late_starts(drawn: random.Random, spec: Spec, within: Within) -> list[Fault]:
    """Each rank sets out up to half a second late."""
    return [
        {"kind": "freeze", "rank": rank, "at": "0ns",
         "duration": format_time(drawn.randrange(_SOON_NS, _LONGEST_LATE_NS, 1_000))}
        for rank in range(spec.ranks)
    ]  # fmt: skip


def _latencies(drawn: random.Random, spec: Spec, within: Within) -> list[Fault]:
    """Each link's delay becomes up to ten times what the spec says."""
    return [
        {"kind": "delay", "link": f"{link.a.node}-{link.b.node}", "at": "0ns",
         "value": format_time(round(link.delay_ns * drawn.uniform(1, _SLOWEST)))}
        for link in spec.plan.fabric.links
    ]  # fmt: skip


def _slow_rank(drawn: random.Random, spec: Spec, within: Within) -> list[Fault]:
    """One rank stands still for a part of each stretch of time."""
    every_ns = drawn.choice([1_000_000, 10_000_000, 100_000_000])
    return [
        {"kind": "freeze", "rank": drawn.randrange(spec.ranks), "at": "1us",
         "every": format_time(every_ns),
         "duration": format_time(int(every_ns * drawn.uniform(0.1, 0.9)))}
    ]  # fmt: skip


def _flap(drawn: random.Random, spec: Spec, within: Within) -> list[Fault]:
    """One link goes down a few times."""
    every_ns = drawn.randrange(20_000_000, 500_000_000, 1_000)
    return [
        {"kind": "flap", "link": _link(drawn, spec), "at": _at(drawn, within),
         "every": format_time(every_ns), "down": format_time(every_ns // 4),
         "duration": format_time(every_ns * drawn.randint(1, 5))}
    ]  # fmt: skip


def _loss(drawn: random.Random, spec: Spec, within: Within) -> list[Fault]:
    """One link loses up to a packet in a hundred."""
    value = f"{drawn.uniform(0.01, 1):.3f}%"
    return [{"kind": "loss", "link": _link(drawn, spec), "at": "0ns", "value": value}]


def _kill(drawn: random.Random, spec: Spec, within: Within) -> list[Fault]:
    """One rank is killed at some time."""
    rank = drawn.randrange(spec.ranks)
    return [{"kind": "kill", "rank": rank, "at": _at(drawn, within)}]


def _kill_step(drawn: random.Random, spec: Spec, within: Within) -> list[Fault]:
    """One rank is killed before it posts a collective or a message: as often before one of the
    first ten as of the next ninety, as nobody knows how many there will be."""
    rank = drawn.randrange(spec.ranks)
    operation = int((within.operations + 1) ** drawn.random()) - 1
    return [{"kind": "kill", "rank": rank, "operation": operation}]


def _memory(drawn: random.Random, spec: Spec, within: Within) -> list[Fault]:
    """One rank may take 1 MB to 1 GB more of memory than it has at some time."""
    value = format_size(round(2 ** drawn.uniform(0, 10)) * 1_000_000)
    rank = drawn.randrange(spec.ranks)
    return [{"kind": "memory-limit", "rank": rank, "at": _at(drawn, within), "value": value}]


def _clocks(drawn: random.Random, spec: Spec, within: Within) -> list[Fault]:
    """Each host's clock is ahead or behind from the beginning, and drifts."""
    return [
        {"kind": "clock", "host": host, "at": "0ns",
         "offset": format_signed_time(round(
             drawn.choice((-1, 1)) * 10 ** (9 + drawn.uniform(*_CLOCK_DECADES)))),
         "drift_ppm": round(drawn.uniform(-_MOST_DRIFT_PPM, _MOST_DRIFT_PPM), 3)}
        for host in dict.fromkeys(spec.plan.hosts)
    ]  # fmt: skip


def _nothing(drawn: random.Random, spec: Spec, within: Within) -> list[Fault]:
    """The order of ranks, or of threads, that are ready at one time is varied, and is no fault."""
    return []


VARIED: Mapping[str, Drawer] = {
    "order": _nothing,
    "starts": _late_starts,
    "latency": _latencies,
    "slow": _slow_rank,
    "flap": _flap,
    "loss": _loss,
    "kill": _kill,
    "kill-step": _kill_step,
    "memory": _memory,
    "threads": _nothing,
    "clock": _clocks,
}
"""The names that `--vary` takes, each with the function that draws its faults."""
HARMLESS = ("order", "starts", "latency", "slow")
"""The variations that a program has to bear without an error."""


def variation(spec: Spec, seed: int, varied: Sequence[str], within: Within) -> Spec:
    """The spec of a seed: its random numbers and ports, the order of ranks, and faults that are
    drawn from it, `within` those limits. Each kind draws from a sequence of its own, so that one
    more kind leaves the others as they are."""
    faults: list[Fault] = []
    for name in varied:
        faults += VARIED[name](random.Random(f"{seed} {name}"), spec, within)
    orders = Orders(seed if "order" in varied else 0, seed if "threads" in varied else 0)
    return with_faults(spec, seed, faults, orders)


def with_faults(spec: Spec, seed: int, faults: Sequence[Fault], orders: Orders) -> Spec:
    """A spec with a seed, orders, and these faults beside its own. Raises SpecError."""
    plain = spec.to_dict()
    changed = {"seed": seed, "faults": [*plain["faults"], *faults]}
    virtual = plain["virtual"] | {"order": orders.ranks, "thread_order": orders.threads}
    return parse_dict(plain | changed | {"virtual": virtual}, f"{spec.name}, seed {seed}")


def _link(drawn: random.Random, spec: Spec) -> str:
    link = drawn.choice(spec.plan.fabric.links)
    return f"{link.a.node}-{link.b.node}"


def _at(drawn: random.Random, within: Within) -> str:
    return format_time(drawn.randrange(_SOON_NS, max(2 * _SOON_NS, within.span_ns), 1_000))

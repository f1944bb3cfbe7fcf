"""Collectives that were found in captures, named by the compiled modules that they are of."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from analysis.decode.gloo.collectives_on_wire import WireCollective
from analysis.decode.hlo.module import HloCollective, HloModule, Repeat, Sequenced
from collectives.kinds import Kind

_STEP: Final = re.compile(r"(?<![a-z])(step|iteration)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HloName:
    """The place of a collective in the program: its module, which execution of it (from 0), and the
    instruction."""

    module: str
    execution: int
    collective: HloCollective


def group_names(modules: Sequence[HloModule]) -> dict[tuple[int, ...], str]:
    """The names of the groups that are along axes of meshes, by their ranks in ascending order: the
    first mesh that has such axes names them."""
    found: dict[tuple[int, ...], str] = {}
    for mesh in dict.fromkeys(mesh for module in modules for mesh in module.meshes):
        names = [name for name, size in mesh.axes if size > 1]
        for mask in range(1, 1 << len(names)):
            axes = [name for bit, name in enumerate(names) if mask >> bit & 1]
            for ranks, name in mesh.groups(axes).items():
                found.setdefault(tuple(sorted(ranks)), name)
    return found


def hlo_names(
    found: Sequence[WireCollective], modules: Sequence[HloModule]
) -> dict[tuple[str, str], HloName]:
    """By group and id of each collective that is one of a module. Ranks run modules one after
    another: what a rank is in, in order of time, is cut into executions of modules, and what its
    lowest rank is in names a collective."""
    names: dict[tuple[str, str], HloName] = {}
    executed: dict[int, dict[str, int]] = {}
    for rank in sorted({rank for each in found for rank in each.ranks}):
        own = sorted(
            (each for each in found if rank in each.intervals_ns),
            key=lambda each: each.intervals_ns[rank],
        )
        executed[rank] = defaultdict(int)
        for each, name in _Follower(rank, own).names(modules, executed[rank]):
            names.setdefault((each.group, each.id), name)
    return names


class _Follower:
    """A rank's collectives, followed through modules."""

    def __init__(self, rank: int, found: Sequence[WireCollective]) -> None:
        self._rank = rank
        self._found = found

    def names(
        self, modules: Sequence[HloModule], executed: dict[str, int]
    ) -> list[tuple[WireCollective, HloName]]:
        """In order. At each place the module is taken that goes on longest."""
        names: list[tuple[WireCollective, HloName]] = []
        at = 0
        before: HloModule | None = None
        while at < len(self._found):
            best: tuple[int, bool, HloModule, list[HloCollective]] | None = None
            for module in modules:
                taken = self._follow(module.sequence, at)
                if taken and (best is None or (len(taken), module is before) > best[:2]):
                    best = len(taken), module is before, module, taken
            if best is None:
                at += 1
                continue
            _, _, before, taken = best
            for each, collective in zip(self._found[at:], taken, strict=False):
                names.append((each, HloName(before.name, executed[before.name], collective)))
            executed[before.name] += 1
            at += len(taken)
        return names

    def _follow(self, sequence: Sequence[Sequenced], at: int) -> list[HloCollective] | None:
        """The instructions of the collectives from a place on, if an execution begins there."""
        taken: list[HloCollective] = []
        for item in sequence:
            if isinstance(item, Repeat):
                times = 0
                while item.times is None or times < item.times:
                    more = self._follow(item.body, at + len(taken))
                    if more is None and item.times is not None:
                        return None
                    if not more:
                        break
                    taken += more
                    times += 1
            elif self._takes_part(item):
                place = at + len(taken)
                if place >= len(self._found) or not self._is(item, self._found[place]):
                    return None
                taken.append(item)
        return taken

    def _takes_part(self, item: HloCollective) -> bool:
        if item.kind is Kind.EXCHANGE:
            return bool(item.pairs_of(self._rank))
        return item.group_of(self._rank) is not None

    def _is(self, item: HloCollective, each: WireCollective) -> bool:
        if item.kind is not each.kind or item.size_bytes != each.size_bytes:
            return False
        if item.kind is not Kind.EXCHANGE:
            return set(item.group_of(self._rank) or ()) == set(each.ranks)
        pairs = {(each.ranks[a], each.ranks[b]) for a, b, _ in each.exchanged}
        return {pair for pair in pairs if self._rank in pair} == item.pairs_of(self._rank)


def steps_of(names: Mapping[tuple[str, str], HloName]) -> str | None:
    """The module whose executions are iterations, of those with several: one that is called a step
    or an iteration, by its function or a named scope in it, or else one that has most of the
    collectives. None where there is none."""
    executions: dict[str, set[int]] = defaultdict(set)
    many: dict[str, int] = defaultdict(int)
    called: set[str] = set()
    for name in names.values():
        executions[name.module].add(name.execution)
        many[name.module] += 1
        if _STEP.search(f"{name.module}/{name.collective.op_name}") is not None:
            called.add(name.module)
    often = [module for module, seen in executions.items() if len(seen) > 1]
    most = max(often, key=lambda module: (module in called, many[module]), default=None)
    if most is None or (most not in called and 2 * many[most] <= len(names)):
        return None
    return most

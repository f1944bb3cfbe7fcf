"""Collectives as transfers that share links by processor sharing (`link_load`), and the ranks that
post them and wait for them.

A transfer begins when its last rank has posted it and one of its group's threads is free, first in,
first out; messages between two ranks take no thread. Nothing is modelled of what a message or a
thread costs a rank's processor.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import assert_never

import numpy as np

from analysis.predict.interface import PredictorError
from analysis.predict.link_load import LinkLoad, LinkLoads
from analysis.predict.scenario import (
    Act,
    Begin,
    Compute,
    Due,
    Meet,
    Pass,
    PostCall,
    Propose,
    Scenario,
    Timeline,
    Until,
    WaitForCall,
)
from collectives.schedule.gloo import THREADS

_FINISHED_NS = 1e-6
"""The rest of a transfer that has come to its end, but for rounding."""

_MOST_WORK = 50_000_000
"""The most progresses of a transfer between two events that are told; more take about 10 s."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A collective: the time that it takes alone, and how it loads its links meanwhile."""

    alone_ns: float
    load: LinkLoad


@dataclass(slots=True)
class _Rank:
    """A rank's main thread: what it does next, and what it is late by."""

    number: int
    acts: Sequence[Act]
    position: int = 0
    late_ns: float = 0.0
    waits_since_ns: float | None = None


@dataclass(slots=True)
class Transfers:
    """All transfers of a scenario, by the places of its calls, and all ranks."""

    scenario: Scenario
    transfers: Sequence[Transfer]
    _now: float = 0.0
    _work: int = 0
    _sleeping: list[tuple[float, int]] = field(default_factory=list)
    _waiting: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _queued: dict[str, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    _busy: Counter[str] = field(default_factory=Counter)
    _begun: list[int] = field(default_factory=list)
    _done: set[int] = field(default_factory=set)
    _meetings: dict[int, float] = field(default_factory=dict)
    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _posted: list[dict[int, float]] = field(default_factory=list)
    _awaited: list[dict[int, float]] = field(default_factory=list)
    _ended_ns: dict[int, float] = field(default_factory=dict)
    _waited_ns: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    _passed: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def run(self) -> Timeline:
        """Follow all ranks to their ends. Raises PredictorError when they wait for each other, and
        where too many transfers are in flight at once."""
        calls = self.scenario.calls
        self._posted = [{} for _ in calls]
        self._awaited = [{} for _ in calls]
        self._ranks = {rank: _Rank(rank, acts) for rank, acts in self.scenario.acts.items()}
        loads = LinkLoads([each.load for each in self.transfers])
        ended = [0.0] * len(calls)
        running, left = np.zeros(0, dtype=np.int64), np.zeros(0)
        for rank in sorted(self._ranks):
            self._advance(rank)
        while True:
            if self._begun:
                alone = [self.transfers[number].alone_ns for number in self._begun]
                running, left = np.append(running, self._begun), np.append(left, alone)
                self._begun = []
            wakes = self._sleeping[0][0] if self._sleeping else math.inf
            if not len(running):
                if math.isinf(wakes):
                    break
                self._now = wakes
            else:
                self._work += len(running)
                if self._work > _MOST_WORK:
                    raise PredictorError(
                        f"{len(running):,} collectives and messages are in flight together, too "
                        "many to follow"
                    )
                slower = loads.slowdowns(running)
                step = min(float((left * slower).min()), wakes - self._now)
                self._now += step
                left = left - step / slower
                over = left <= _FINISHED_NS
                finished = running[over].tolist()
                running, left = running[~over], left[~over]
                for number in finished:
                    ended[number] = self._now
                    self._is_over(number)
            while self._sleeping and self._sleeping[0][0] <= self._now:
                self._advance(heappop(self._sleeping)[1])
        completed = [
            dict.fromkeys(each.call.ranks, end) if number in self._done else {}
            for number, (each, end) in enumerate(zip(calls, ended, strict=True))
        ]
        return Timeline(
            calls,
            self._posted,
            completed,
            self._awaited,
            self._ended_ns,
            self._waited_ns,
            self._passed,
        )

    def _advance(self, number: int) -> None:
        """Have a rank act until it sleeps, waits, or has come to its end."""
        rank = self._ranks[number]
        while rank.position < len(rank.acts):
            act = rank.acts[rank.position]
            if isinstance(act, WaitForCall) and act.call not in self._done:
                if rank.waits_since_ns is None:
                    rank.waits_since_ns = self._now
                    self._waiting[act.call].append(number)
                return
            rank.position += 1
            wakes = self._act(rank, act)
            if wakes > self._now:
                heappush(self._sleeping, (wakes, number))
                return
        self._ended_ns.setdefault(number, self._now)

    def _act(self, rank: _Rank, act: Act) -> float:
        """Until when the rank sleeps then."""
        now = self._now
        match act:
            case Compute(duration_ns):
                return now + duration_ns
            case Due(at_ns):
                rank.late_ns = max(0.0, now - at_ns)
            case Until(at_ns):
                return at_ns + rank.late_ns
            case PostCall(call):
                self._post(call, rank.number)
            case WaitForCall(call):
                self._awaited[call][rank.number] = now
                if rank.waits_since_ns is not None:
                    self._waited_ns[rank.number] += now - rank.waits_since_ns
                    rank.waits_since_ns = None
            case Pass(number):
                self._passed[rank.number, number] = now, self._waited_ns[rank.number]
            case Propose(meeting, margin_ns, grid_ns):
                proposed = math.ceil((now + margin_ns) / grid_ns) * grid_ns
                self._meetings[meeting] = max(self._meetings.get(meeting, 0.0), proposed)
            case Meet(meeting):
                return self._meetings[meeting]
            case Begin():
                pass  # faults are not followed here
            case _:
                assert_never(act)
        return now

    def _post(self, call: int, rank: int) -> None:
        grouped = self.scenario.calls[call]
        posted = self._posted[call]
        posted[rank] = self._now
        if len(posted) < len(grouped.call.ranks):
            return
        if not self._takes_thread(call):
            self._begun.append(call)
        elif self._busy[grouped.group] < THREADS:
            self._busy[grouped.group] += 1
            self._begun.append(call)
        else:
            self._queued[grouped.group].append(call)

    def _takes_thread(self, call: int) -> bool:
        found = self.scenario.calls[call].call
        return found.schedule.queue(found.shape.kind) is not None

    def _is_over(self, call: int) -> None:
        """The next one of its group begins, and who waited for it goes on."""
        self._done.add(call)
        group = self.scenario.calls[call].group
        if self._takes_thread(call):
            if self._queued[group]:
                self._begun.append(self._queued[group].popleft())
            else:
                self._busy[group] -= 1
        for rank in sorted(self._waiting.pop(call, ())):
            self._advance(rank)

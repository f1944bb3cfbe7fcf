"""The work of a rank when an aggregation node dies and the spec says: fall back.

All trees of the run are given up then. Ranks agree on the collectives that each group had
completed, and do the rest by hosts. They begin from their own inputs. Where somebody had completed
an all-reduce, they send that result to the others, so that all have the same bits. Telling each
other takes pipes beside the network, and no virtual time (`requests`).
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from typing import Protocol

import torch

from collectives.kinds import Kind
from workloads.execution.aggregation.place import TreePlace, rescue_pipe
from workloads.execution.programs.engine import ProgramWork

_COUNT = struct.Struct("!q")


class ByHosts(Protocol):
    """A collective as hosts do it; it has tags of its own, taken when it was posted."""

    @property
    def kind(self) -> Kind: ...

    def again(self, data: torch.Tensor) -> ProgramWork:
        """All of it, from the inputs, in place."""

    def spread(self, root: int, data: torch.Tensor) -> ProgramWork:
        """The result of one member to all, in place."""

    def fell_back(self) -> None:
        """Note in the log that the switches did not complete it everywhere."""


@dataclass(slots=True)
class _Kept:
    """A collective that not all members are known to have completed: its inputs, and what trees
    make of them, which is the result when it is done."""

    by_hosts: ByHosts
    source: torch.Tensor
    target: torch.Tensor
    result: torch.Tensor
    work: ProgramWork = field(default_factory=lambda: ProgramWork(1))
    done: bool = False


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far a member had come on the trees: it had posted so many collectives, and completed so
    many in order, and `beyond` these."""

    posted: int
    completed: int
    beyond: tuple[int, ...]

    def has(self, number: int) -> bool:
        return number < self.completed or number in self.beyond


class Rescue:
    """A rank's memory in a group of what it may have to do again, and the doing of it.

    Collectives are kept until all members have completed them, of which a file has the counts.
    """

    def __init__(self, place: TreePlace, members: int) -> None:
        """Raises OSError for pipes that are not there."""
        self._me = place.me
        self._directory = place.directory
        self._members = members
        self._changed = Condition()
        self._kept: dict[int, _Kept] = {}
        self._posted = 0
        self._completed = 0
        self._frozen = False
        self._rest_by_hosts_from: int | None = None
        self._counts = os.open(place.directory / "completed", os.O_RDWR | os.O_CREAT, 0o600)
        self._pipe = self._open(place.me)
        Thread(target=self._wait_for_loss, daemon=True).start()

    # -- while all is well -------------------------------------------------------------------------

    def admit(self) -> int | None:
        """The number of a collective that is about to be started; None where hosts do it from the
        beginning."""
        with self._changed:
            self._changed.wait_for(lambda: not self._frozen or self._rest_by_hosts_from is not None)
            number = self._posted
            self._posted += 1
            last = self._rest_by_hosts_from
            return number if last is None or number < last else None

    def start(
        self,
        number: int,
        by_hosts: ByHosts,
        source: torch.Tensor,
        target: torch.Tensor,
        start: Callable[[torch.Tensor], ProgramWork],
    ) -> ProgramWork:
        """Start a collective that was admitted on the trees, and keep what it may take to do it
        again. The work that it returns is complete when it is complete either way.

        The trees have memory of their own: Gloo never ends what it was receiving when a connection
        broke (gloo/transport/tcp/pair.cc), so that this may be written to at any time."""
        kept = _Kept(by_hosts, source.clone(), target, source.clone())
        with self._changed:
            self._kept[number] = kept
            inner = None if self._frozen else start(kept.result)
            self._changed.notify_all()
        if inner is not None:
            inner.add_done_callback(partial(self._is_over, kept))
        return kept.work

    def _is_over(self, kept: _Kept, inner: ProgramWork) -> None:
        if inner.error is not None:
            self._tell(self._me, {})  # whatever it was: the trees are of no use any more
            return
        with self._changed:
            if self._frozen:
                return  # it will be done again
            kept.target.copy_(kept.result)
            kept.done = True
            self._forget_what_all_have()
        kept.work.chunk_done()

    def _forget_what_all_have(self) -> None:
        while self._completed in self._kept and self._kept[self._completed].done:
            self._completed += 1
        os.pwrite(self._counts, _COUNT.pack(self._completed), self._me * _COUNT.size)
        known = os.pread(self._counts, self._members * _COUNT.size, 0)
        everywhere = 0
        if len(known) == self._members * _COUNT.size:
            everywhere = min(count for (count,) in _COUNT.iter_unpack(known))
        for number in [n for n in self._kept if n < everywhere]:
            del self._kept[number]

    # -- when a node is lost -----------------------------------------------------------------------

    def _wait_for_loss(self) -> None:
        """Wait until somebody says that a node is lost; then agree with the others, and do again
        what has to be."""
        progress: dict[int, _Progress] = {}
        with os.fdopen(self._pipe, closefd=False) as lines:
            while len(progress) < self._members:
                told = json.loads(lines.readline())
                if not self._frozen:
                    self._freeze()
                if "member" in told:
                    member = told.pop("member")
                    progress[member] = _Progress(
                        told["posted"], told["completed"], tuple(told["beyond"])
                    )
        self._do_again(progress)

    def _freeze(self) -> None:
        """Nothing more is started on the trees, and nothing is completed there. All members are
        told how far this one has come."""
        with self._changed:
            self._frozen = True
            beyond = [n for n, kept in self._kept.items() if kept.done and n > self._completed]
            said = {"posted": self._posted, "completed": self._completed, "beyond": beyond}
        for member in range(self._members):
            self._tell(member, {"member": self._me} | said)

    def _do_again(self, progress: Mapping[int, _Progress]) -> None:
        last = max(each.posted for each in progress.values())
        with self._changed:
            self._rest_by_hosts_from = last
            self._changed.notify_all()
        for number in range(min(each.completed for each in progress.values()), last):
            having = [m for m, each in sorted(progress.items()) if each.has(number)]
            if len(having) == self._members:
                continue
            with self._changed:
                self._changed.wait_for(partial(self._kept.__contains__, number))
                kept = self._kept[number]
            kept.by_hosts.fell_back()
            self._do_one_again(kept, having)

    def _do_one_again(self, kept: _Kept, having: list[int]) -> None:
        by_hosts = kept.by_hosts
        # A rank that has its result keeps it, and takes part.
        target = torch.empty_like(kept.target) if kept.done else kept.target
        if by_hosts.kind is Kind.ALL_REDUCE and having:
            target.copy_(kept.result if kept.done else kept.source)
            work = by_hosts.spread(having[0], target)
        else:
            target.copy_(kept.source)
            work = by_hosts.again(target)
        if not kept.done:
            work.add_done_callback(partial(_pass_on, kept.work))

    def _tell(self, member: int, what: dict[str, object]) -> None:
        descriptor = self._open(member)
        # In one piece: it is shorter than PIPE_BUF (pipe(7)).
        os.write(descriptor, (json.dumps(what) + "\n").encode())
        os.close(descriptor)

    def _open(self, member: int) -> int:
        # For both ways: to open it for one alone would wait for the other end (fifo(7)).
        path: Path = rescue_pipe(self._directory, member)
        return os.open(path, os.O_RDWR)


def _pass_on(whole: ProgramWork, part: ProgramWork) -> None:
    if part.error is not None:
        whole.failed(part.error)
    else:
        whole.chunk_done()

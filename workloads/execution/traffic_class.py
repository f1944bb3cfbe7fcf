"""The traffic class of what this thread, and all that it starts, sends; and those of groups.

Only the virtual kernel has it (`emulator/kernel/patches/0017-traffic-classes-of-tasks.patch`): bits
of a task's personality(2) that Linux has no use for.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from collectives.groups import selectors_of_groups
from topologies.spec.sections import Sections

_QUERY = 0xFFFFFFFF
_SOCKETS_SHIFT, _RDMA_SHIFT = 8, 11
_ALL = 0o77 << _SOCKETS_SHIFT

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """DSCP class selectors: of what sockets send, and of what RDMA queue pairs do."""

    sockets: int = 0
    rdma: int = 0

    def use(self) -> None:
        """Give it to all sockets and queue pairs that are made from now on. Raises OSError."""
        if self != NO_CLASS:
            self._replace()

    @contextmanager
    def during(self) -> Iterator[None]:
        """Give it to the sockets that are made meanwhile; a listening one hands it on to the
        connections that it accepts. Raises OSError."""
        before = self._replace()
        try:
            yield
        finally:
            _personality(before)

    def _replace(self) -> int:
        """Returns the personality that was there before."""
        before = _personality(_QUERY)
        chosen = self.sockets << _SOCKETS_SHIFT | self.rdma << _RDMA_SHIFT
        if before & _ALL != chosen:
            _personality(before & ~_ALL | chosen)
        return before


NO_CLASS = TrafficClass()


def _personality(wanted: int) -> int:
    """Returns the one before. Raises OSError."""
    found = int(_libc.personality(ctypes.c_ulong(wanted)))
    if found == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found


@dataclass(frozen=True, slots=True)
class TrafficOfGroups:
    """`by_members` has the groups with a class of their own, by their ranks; the others have that
    of the ranks."""

    of_ranks: TrafficClass
    by_members: Mapping[tuple[int, ...], TrafficClass]

    @classmethod
    def of_spec(cls, spec: Sections) -> TrafficOfGroups:
        """The classes of a spec with one workload. The group of all ranks gives its class to the
        ranks."""
        found = {
            members: TrafficClass(selector, selector)
            for members, selector in selectors_of_groups(spec).items()
        }
        plain = TrafficClass(spec.socket_priority, spec.rdma_priority)
        return cls(found.get(tuple(range(spec.workload.ranks)), plain), found)

    def of(self, members: Sequence[int]) -> TrafficClass:
        """The class of a group's messages, and of its tree's switches."""
        return self.by_members.get(tuple(members), self.of_ranks)

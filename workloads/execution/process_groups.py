"""Where a rank's process groups come from: torch's default group, or groups of the rank's own.

torch keeps the default group and the names of groups per process. A rank that is one of several
threads of a process makes its groups without them: same Gloo, same store, same keys in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import timedelta
from ipaddress import IPv4Address
from typing import Protocol

import torch
import torch.distributed as dist

from workloads.execution.connections import (
    EstablishedConnection,
    established,
    established_here,
    listening_here,
)
from workloads.execution.rank_plan import RankPlan

# Virtual time passes at no cost while everybody waits, so a time-out cannot tell slow from stuck
# there; the launcher and the guest's watchdog find stuck runs. One day never fires before them.
_TIMEOUT = timedelta(days=1)
# What torch gives Gloo per device (ProcessGroupGloo.cpp).
_GLOO_THREADS = 2


class ProcessGroups(Protocol):
    """The process groups of one rank of a run. `world` is None where it is torch's default."""

    world: dist.ProcessGroup | None

    def connections(self) -> Sequence[EstablishedConnection]:
        """The TCP connections of the rank's `world`; to be called once, before other groups are
        made. With lazy connections, those that there are so far; other groups may be there."""

    def new_group(self, ranks: Sequence[int]) -> dist.ProcessGroup | None:
        """A group over some ranks of the run. Every rank makes all of them, in the same order; who
        is not in one gets nothing of use."""

    def leave(self) -> None:
        """Close all groups, and the store at rank 0. Nobody else may hold a group."""


class DefaultGroups:
    """The groups of a rank that is a process: torch's."""

    world: dist.ProcessGroup | None = None

    def __init__(self, plan: RankPlan) -> None:
        """Raises torch's DistStoreError or RuntimeError when the fabric does not connect ranks."""
        os.environ["GLOO_SOCKET_IFNAME"] = plan.interface
        self._store: dist.TCPStore | None = _store_of(plan)
        dist.init_process_group(
            "gloo",
            store=self._store,
            rank=plan.rank,
            world_size=plan.world_size,
            timeout=_TIMEOUT,
        )

    def connections(self) -> Sequence[EstablishedConnection]:
        return established()

    def new_group(self, ranks: Sequence[int]) -> dist.ProcessGroup | None:
        return dist.new_group(list(ranks), timeout=_TIMEOUT)

    def leave(self) -> None:
        dist.destroy_process_group()
        self._store = None


class ThreadGroups:
    """The groups of a rank that is one of a process's threads, which is in its host's network
    namespace: threads and sockets that Gloo makes here are there, too."""

    def __init__(self, plan: RankPlan) -> None:
        """Raises torch's DistStoreError or RuntimeError when the fabric does not connect ranks."""
        self._plan = plan
        self._ranks = {IPv4Address(a): rank for rank, a in enumerate(plan.addresses)}
        self._store: dist.TCPStore | None = _store_of(plan)
        self._groups: list[dist.ProcessGroup] = []
        self._count = 0
        # torch.distributed names groups by their number, and keeps those of the run in the store
        # below the default one's.
        self._keys = dist.PrefixStore("0/", self._store)
        self.world: dist.ProcessGroup | None = None
        self.world = self._make(range(plan.world_size), self._keys)
        self._listens: set[int] = set()
        if plan.lazy:
            # Each group's device listens at a port of its own: this is how one tells afterwards
            # which connection is of which group.
            self._listens = listening_here() - {plan.store_port}
            self._keys.set(f"listens/{plan.rank}", json.dumps(sorted(self._listens)))

    def connections(self) -> Sequence[EstablishedConnection]:
        found = established_here()
        return [c for c in found if self._is_of_world(c)] if self._plan.lazy else found

    def _is_of_world(self, connection: EstablishedConnection) -> bool:
        peer = self._ranks.get(connection.peer_address)
        if peer is None or peer <= self._plan.rank:
            return False
        at_peer = json.loads(self._keys.get(f"listens/{peer}"))
        return connection.port in self._listens or connection.peer_port in at_peer

    def new_group(self, ranks: Sequence[int]) -> dist.ProcessGroup | None:
        keys = dist.PrefixStore(f"{self._count}/", self._keys)
        return self._make(sorted(ranks), keys)

    def leave(self) -> None:
        self.world = None
        while self._groups:
            self._groups.pop().shutdown()
        del self._keys
        self._store = None

    def _make(self, ranks: Sequence[int], keys: dist.Store) -> dist.ProcessGroup | None:
        self._count += 1
        if self._plan.rank not in ranks:
            return None
        rank, size = ranks.index(self._plan.rank), len(ranks)
        options = dist.ProcessGroupGloo._Options()
        options._devices = [
            dist.ProcessGroupGloo.create_device(
                interface=self._plan.interface, lazy_init=self._plan.lazy
            )
        ]
        options._threads = _GLOO_THREADS
        options._timeout = _TIMEOUT
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("cpu/", keys), rank, size, options)
        group = dist.ProcessGroup(keys, rank, size)
        group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
        self._groups.append(group)
        return group


def _store_of(plan: RankPlan) -> dist.TCPStore:
    """A TCPStore at rank 0, as torchrun makes it."""
    return dist.TCPStore(
        plan.addresses[0],
        plan.store_port,
        plan.world_size,
        is_master=plan.rank == 0,
        timeout=_TIMEOUT,
        wait_for_workers=False,
    )

"""A rank's process groups: torch's default group, or groups of the rank's own.

torch keeps the default group and the names of groups per process. A rank that is one of several
threads of a process makes its groups without them: same Gloo, same store, same keys in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
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
    ports_to_later_ranks,
)
from workloads.execution.handshakes import HandshakesHere
from workloads.execution.rank_plan import RankPlan
from workloads.execution.store_client import StoreClient
from workloads.observer.handshakes import Handshake

# Virtual time passes at no cost while everybody waits, so a time-out cannot tell slow from stuck
# there; the launcher and the guest's watchdog find stuck runs. One day never fires before them.
_TIMEOUT = timedelta(days=1)
# The settings that torch gives Gloo per device (ProcessGroupGloo.cpp).
_GLOO_THREADS = 2

# From so many ranks on, Gloo's rendezvous sends what grows with their square, not with their cube.
_MANY_RANKS = 256

WORLD = "default"
"""The name of the group of all ranks in logs."""

Ports = Mapping[int, tuple[int, int]]
"""By higher rank: this rank's TCP port, and the peer's."""


class ProcessGroups(Protocol):
    """The process groups of one rank of a run. `world` is None where it is torch's default."""

    world: dist.ProcessGroup | None

    @property
    def names(self) -> Sequence[str]:
        """The names of the groups of this rank, `WORLD` first."""

    def ports(self, name: str) -> Ports:
        """The ports of a group's connections. With lazy connections, of those that there are so
        far; else this is to be called once for each group, before the next one is made."""

    def handshakes(self, name: str) -> Mapping[int, Handshake]:
        """By peer, what TCP measured of the connections of the group that was made last, which has
        this name; to be called once for each."""

    def late_greetings(self) -> Mapping[str, Mapping[int, Handshake]]:
        """By group and peer, what it measured of those whose greeting was on its way then, and is
        acknowledged now."""

    def acknowledge_store(self) -> None:
        """Send what the rank's connection to the store has to acknowledge."""

    def new_group(self, ranks: Sequence[int], name: str) -> dist.ProcessGroup | None:
        """A group over some ranks of the run. Every rank makes all of them, in the same order; a
        rank outside of one gets nothing of use."""

    def leave(self) -> None:
        """Close all groups, and the store at rank 0. Nobody else may hold a group."""


class DefaultGroups:
    """The groups of a rank that is a process: torch's."""

    world: dist.ProcessGroup | None = None

    def __init__(self, plan: RankPlan) -> None:
        """Raises torch's DistStoreError or RuntimeError when the fabric does not connect ranks."""
        os.environ["GLOO_SOCKET_IFNAME"] = plan.interface
        self._plan = plan
        self._names = [WORLD]
        self._known: set[EstablishedConnection] = set()
        self._handshakes = _handshakes(plan)
        self._client = StoreClient(plan.addresses[plan.rank], plan.addresses[0], plan.store_port)
        self._store: dist.TCPStore | None = _rendezvous(plan)
        dist.init_process_group(
            "gloo",
            store=self._store,
            rank=plan.rank,
            world_size=plan.world_size,
            timeout=_TIMEOUT,
        )

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def ports(self, name: str) -> Ports:
        found = established()
        new = [connection for connection in found if connection not in self._known]
        self._known.update(new)
        return _ports_of(self._plan, new)

    def handshakes(self, name: str) -> Mapping[int, Handshake]:
        return self._handshakes.of_new(name)

    def late_greetings(self) -> Mapping[str, Mapping[int, Handshake]]:
        return self._handshakes.of_late_greetings()

    def acknowledge_store(self) -> None:
        self._client.acknowledge()

    def new_group(self, ranks: Sequence[int], name: str) -> dist.ProcessGroup | None:
        if self._plan.rank in ranks:
            self._names.append(name)
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
        self._client = StoreClient(plan.addresses[plan.rank], plan.addresses[0], plan.store_port)
        self._store: dist.TCPStore | None = _rendezvous(plan)
        self._groups: list[dist.ProcessGroup] = []
        self._members: dict[str, Sequence[int]] = {}
        self._known: set[EstablishedConnection] = set()
        self._handshakes = _handshakes(plan)
        # Where connections are lazy: at which ports each group's device listens, and all of them.
        self._listens: dict[str, set[int]] = {}
        self._listened: set[int] = {plan.store_port}
        self._count = 0
        # torch.distributed names groups by their number, and keeps those of the run in the store
        # below the default one's.
        self._keys = dist.PrefixStore("0/", self._store)
        self.world: dist.ProcessGroup | None = None
        self.world = self._make(range(plan.world_size), self._keys, WORLD)

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._members)

    def ports(self, name: str) -> Ports:
        found = established_here()
        if self._plan.lazy:
            return _ports_of(self._plan, [c for c in found if self._is_of(name, c)])
        new = [connection for connection in found if connection not in self._known]
        self._known.update(new)
        return _ports_of(self._plan, new)

    def handshakes(self, name: str) -> Mapping[int, Handshake]:
        return self._handshakes.of_new(name)

    def late_greetings(self) -> Mapping[str, Mapping[int, Handshake]]:
        return self._handshakes.of_late_greetings()

    def acknowledge_store(self) -> None:
        self._client.acknowledge()

    def _is_of(self, name: str, connection: EstablishedConnection) -> bool:
        peer = self._ranks.get(connection.peer_address)
        if peer is None or peer <= self._plan.rank or peer not in self._members[name]:
            return False
        at_peer = json.loads(self._keys.get(f"listens/{name}/{peer}"))
        return connection.port in self._listens[name] or connection.peer_port in at_peer

    def new_group(self, ranks: Sequence[int], name: str) -> dist.ProcessGroup | None:
        keys = dist.PrefixStore(f"{self._count}/", self._keys)
        return self._make(sorted(ranks), keys, name)

    def leave(self) -> None:
        self.world = None
        while self._groups:
            self._groups.pop().shutdown()
        del self._keys
        self._store = None

    def _make(self, ranks: Sequence[int], keys: dist.Store, name: str) -> dist.ProcessGroup | None:
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
        self._members[name] = ranks
        if self._plan.lazy:
            # Each group's device listens at a port of its own: this is how one tells afterwards
            # which connection is of which group.
            self._listens[name] = listening_here() - self._listened
            self._listened |= self._listens[name]
            listens = json.dumps(sorted(self._listens[name]))
            self._keys.set(f"listens/{name}/{self._plan.rank}", listens)
        return group


def _ports_of(plan: RankPlan, connections: Sequence[EstablishedConnection]) -> Ports:
    addresses = dict(enumerate(plan.addresses))
    return ports_to_later_ranks(connections, plan.rank, addresses, plan.store_port)


def _handshakes(plan: RankPlan) -> HandshakesHere:
    return HandshakesHere(plan.rank, dict(enumerate(plan.addresses)), plan.store_port)


def _rendezvous(plan: RankPlan) -> dist.TCPStore:
    """A TCPStore at rank 0, as torchrun makes it, where Gloo's ranks find each other.

    A rank's entry there lists a number for each of its pairs, 8 bytes, and each rank reads all
    entries and holds them until it is connected: 8.6 GB with 1,024 ranks, on the wire and in
    memory. With `_MANY_RANKS` a pair goes by its peer's rank, so that entries have no list, and a
    request reads 128 of them (Gloo: common/utils.cc, transport/tcp/context.cc). With fewer, ranks
    do as torch does by default.

    Without libuv it closes its connections in the order in which they came. With libuv it closes
    them by their addresses in memory (TCPStoreLibUvBackend.cpp, `clients_`), so that a run's last
    packets hang on the length of a path.
    """
    if plan.world_size >= _MANY_RANKS:
        os.environ["GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER"] = "1"
        os.environ["GLOO_ENABLE_STORE_V2_API"] = "1"
    return dist.TCPStore(
        plan.addresses[0],
        plan.store_port,
        plan.world_size,
        is_master=plan.rank == 0,
        timeout=_TIMEOUT,
        wait_for_workers=False,
        use_libuv=False,
    )

"""Connections along the edges of an aggregation tree.

Each edge is a group of two with a connection of its own. Addresses are exchanged by a file, as
SHARP's aggregation manager sets trees up beside the network that they reduce in.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from workloads.execution.aggregation.place import TreePlace
from workloads.execution.copies.links import CopyEnds, CopyLinks

_TIMEOUT = timedelta(days=1)  # as process groups have it: virtual time cannot tell slow from stuck


class TreeLinks:
    """The edges of one participant. It stands in for torch's group where programs send and receive:
    peers are participants' numbers. Messages between two ranks go by `among_ranks`, where a program
    has some beside those of switches. To be made in the participant's network namespace."""

    def __init__(self, place: TreePlace, ends: CopyEnds | None = None) -> None:
        """`ends` are those of the participant's copies, where it has some already. Raises
        RuntimeError when a neighbour cannot be reached."""
        self._store = dist.FileStore(str(place.directory / "addresses"), -1)
        self._interface = place.interface
        self._edges: dict[int, tuple[Any, int]] = {}
        self.among_ranks: Any = None
        self._copies: CopyLinks | None = None
        if place.copies is not None:
            name = f"tree {place.directory.name}"
            own = CopyEnds(place.copies) if ends is None else ends
            self._copies = CopyLinks(own, name, place.nodes, place.me, None)
        with place.traffic.during():
            # The links below come first: a participant above waits for those below it.
            for child in place.children:
                self._edges[child] = self._edge(place.me, child)
            for parent in place.above:
                self._edges[parent] = self._edge(place.me, parent)

    def say_ready(self, me: int) -> None:
        """Tell everybody that this switch can be reached."""
        self._store.set(f"ready/{me}", "")

    def await_ready(self, switches: Iterable[int]) -> None:
        """Wait until all these switches have said so: the first collective finds its tree."""
        self._store.wait([f"ready/{switch}" for switch in switches], _TIMEOUT)

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        """As torch's groups have it."""
        group, number = self._edges.get(peer, (self.among_ranks, peer))
        return group.send(tensors, number, tag)

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        """As torch's groups have it."""
        group, number = self._edges.get(peer, (self.among_ranks, peer))
        return group.recv(tensors, number, tag)

    def _edge(self, me: int, peer: int) -> tuple[Any, int]:
        """A group of two, of whom the lower participant is number 0, and the peer's number; or the
        links of copies, which have all participants."""
        if self._copies is not None and self._copies.reaches(peer):
            return self._copies, peer
        options = dist.ProcessGroupGloo._Options()
        # A device of its own, as torch makes one for each group: Gloo numbers what connects to a
        # device, and a capture is read by these numbers.
        options._devices = [dist.ProcessGroupGloo.create_device(interface=self._interface)]
        options._threads = 1
        options._timeout = _TIMEOUT
        store = dist.PrefixStore(f"{min(me, peer)}-{max(me, peer)}/", self._store)
        number = int(peer > me)
        return dist.ProcessGroupGloo(store, 1 - number, 2, options), number

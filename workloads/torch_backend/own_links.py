"""The ends of a script's process groups, where its messages go over a transport that has some."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from workloads.execution.transports.interface import Links, Place, RankEnds, connections_from
from workloads.execution.transports.socket_links import SpreadLinks
from workloads.torch_backend.configuration import place_of


def own_links(
    store: dist.Store, name: str, ranks: Sequence[int], me: int, timeout: timedelta, gloo: Links
) -> Links:
    """Those of a group, to be made by all of its ranks together; its sockets, `gloo`, where
    messages go through these, and through more where the run has several of two ranks. `me` is the
    number in the group. Raises ConfigurationError, and what the transport raises (VerbsError)."""
    place = place_of(os.environ)
    if len(ranks) == 1:
        return gloo
    if place is None:
        return _spread(store, me, len(ranks), timeout, gloo)
    own = dist.PrefixStore("groundwire/queue pairs", store)
    log = _RankLog(place.directory / f"{ranks[me]:03d}.jsonl")
    everybody = len(ranks) == place.ranks
    # As the observer names groups.
    label = "default" if everybody else f"group.{name}"
    return _ends(place).links(own, label, ranks, ranks[me], log)


def _spread(store: dist.Store, me: int, size: int, timeout: timedelta, gloo: Links) -> Links:
    between = connections_from(os.environ)
    if between.count == 1:
        return gloo
    observer = getattr(distributed_c10d, "groundwire_observer", None)
    made = (lambda: None) if observer is None else observer.sockets.made
    made()
    further = []
    for number in range(1, between.count):
        own = dist.PrefixStore(f"groundwire/connection {number}", store)
        further.append(dist.ProcessGroupGloo(own, me, size, timeout=timeout))
        made()
    return SpreadLinks([gloo, *further], between)


@cache
def _ends(place: Place) -> RankEnds:
    """This process's."""
    return place.open()


class _RankLog:
    """Ends in the rank's log, where the observer's lines are."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def end(self, event: str, group: str, peer: int, told: Mapping[str, Any]) -> None:
        """An end of this rank with another's."""
        line = {"event": event, "group": group, "peer": peer} | dict(told)
        with self._path.open("a") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

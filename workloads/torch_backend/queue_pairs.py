"""The queue pairs of a script's process groups, where its messages go over RoCE."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

import torch.distributed as dist

from workloads.execution.verbs.place import RocePlace
from workloads.execution.verbs.queue_pairs import LoggedEnds, QueuePairLinks, RankDevices
from workloads.torch_backend.configuration import roce_place_of


def queue_pair_links(
    store: dist.Store, name: str, ranks: Sequence[int], me: int
) -> QueuePairLinks | None:
    """Those of a group, to be made by all of its ranks together; None where messages go over TCP.
    `me` is the number in the group. Raises ConfigurationError, VerbsError."""
    place = roce_place_of(os.environ)
    if place is None or len(ranks) == 1:
        return None
    own = dist.PrefixStore("groundwire/queue pairs", store)
    log = _RankLog(place.directory / f"{ranks[me]:03d}.jsonl")
    everybody = len(ranks) == len(place.device_to)
    # As the observer names groups.
    label = "default" if everybody else f"group.{name}"
    return QueuePairLinks(_devices(place), own, label, ranks, ranks[me], log)


@cache
def _devices(place: RocePlace) -> RankDevices:
    """This process's."""
    return RankDevices(place)


class _RankLog:
    """Queue pairs in the rank's log, where the observer's lines are."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def queue_pair(self, group: str, peer: int, ends: LoggedEnds) -> None:
        line = {"event": "queue_pair", "group": group, "peer": peer} | asdict(ends)
        with self._path.open("a") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")

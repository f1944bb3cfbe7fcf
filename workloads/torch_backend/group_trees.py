"""The trees of switches of a script's process group, given to it when it is made."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

import torch.distributed as dist

from collectives.algorithms.aggregation import Aggregation
from collectives.in_network.on_demand import by_switches
from topologies.spec.collectives_section import CollectivesSection
from workloads.execution.aggregation.client import AggregationClient
from workloads.execution.aggregation.given import DIRECTORY_VARIABLE, GivenTrees, ask
from workloads.torch_backend.configuration import VARIABLE, ConfigurationError

_KEY = "trees"


def joined_trees(
    section: CollectivesSection, store: dist.Store, ranks: Sequence[int], me: int
) -> tuple[CollectivesSection, AggregationClient | None]:
    """The section of a group with its trees in it, and this rank's end of these; None where the
    section asks for none, or where there are none. To be called by all ranks of the group, with
    their own number in it. Raises ConfigurationError, OSError, RuntimeError for a switch that
    cannot be reached."""
    if len(ranks) < 2 or not by_switches(section):
        return section, None
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if directory is None:
        raise ConfigurationError(
            f"{VARIABLE}: found algorithm: {Aggregation.name} where no switches take part; allowed "
            "in runs whose spec has it, with a section aggregation"
        )
    own = dist.PrefixStore("groundwire/aggregation", store)
    if me == 0:
        asked = section.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        own.set(_KEY, ask(Path(directory), ranks, asked))
    given = GivenTrees.from_json(own.get(_KEY).decode())
    collectives = given.collectives
    assert collectives.aggregation is not None
    trees = [tree for tree in collectives.aggregation.trees if not tree.reason]
    if not trees:
        return collectives, None
    places = [given.place(number, tree, me, False) for number, tree in enumerate(trees)]
    client = AggregationClient(places)
    _leave_at_exit(client)
    return collectives, client


def _leave_at_exit(client: AggregationClient) -> None:
    """Tell the switches at the end of the process, where the group was not destroyed."""
    known = weakref.ref(client)

    def leave() -> None:
        left = known()
        if left is not None:
            left.leave()

    atexit.register(leave)

"""Programs executed by threads over messages in memory: they end, and their numbers are right."""

from __future__ import annotations

from collections import defaultdict
from threading import Event, Lock
from typing import Any

import pytest
import torch

from collectives.algorithms import algorithm
from collectives.chunking import Chunking, cut
from collectives.kinds import Kind, Shape
from collectives.start_order import CollectiveOrder
from workloads.execution.programs.engine import ProgramEngine

PATIENCE_S = 60.0


class Wires:
    """Messages between ranks, by their ends and tag."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sent: defaultdict[tuple[int, int, int], list[torch.Tensor]] = defaultdict(list)
        self._there: defaultdict[tuple[int, int, int], Event] = defaultdict(Event)

    def put(self, key: tuple[int, int, int], tensor: torch.Tensor) -> None:
        with self._lock:
            self._sent[key].append(tensor.clone())
            self._there[key].set()

    def take(self, key: tuple[int, int, int]) -> torch.Tensor:
        with self._lock:
            there = self._there[key]
        if not there.wait(PATIENCE_S):
            raise RuntimeError(f"no message {key}")
        return self._sent[key][0]


class Received:
    """The handle by which a receive is waited for."""

    def __init__(self, wires: Wires, key: tuple[int, int, int], into: torch.Tensor) -> None:
        self._wires, self._key, self._into = wires, key, into

    def wait(self) -> None:
        self._into.copy_(self._wires.take(self._key))


class Sent:
    def wait(self) -> None:
        """A message in memory has left at once."""


class Group:
    """One rank's end, as ProcessGroupGloo's."""

    def __init__(self, wires: Wires, rank: int) -> None:
        self._wires, self._rank = wires, rank

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Sent:
        self._wires.put((self._rank, peer, tag), tensors[0])
        return Sent()

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Received:
        return Received(self._wires, (peer, self._rank, tag), tensors[0])


def all_reduced(name: str, ranks: int, schedule: Chunking, **options: Any) -> list[torch.Tensor]:
    """Each rank's tensor after an all-reduce of 720 elements."""
    shape = Shape(Kind.ALL_REDUCE, 720 * 4, ranks, 4)
    found = cut(shape, algorithm(name, **options), schedule)
    wires = Wires()
    tensors = [torch.arange(720, dtype=torch.float32) + rank for rank in range(ranks)]
    works = []
    for rank, tensor in enumerate(tensors):
        engine = ProgramEngine(rank, schedule.in_flight, schedule.order)
        works.append(
            engine.start(
                found,
                Group(wires, rank),
                tensor,
                tensor,
                engine.take_slots(found),
                agree=lambda proposal, agreed: agreed(proposal),
            )
        )
    for work in works:
        work.wait()
    return tensors


@pytest.mark.parametrize(
    ("name", "ranks", "options"),
    [
        # Sequences here wait for each other's steps while later ones of theirs are under way.
        ("torus", 12, {"dimensions": [2, 3, 2]}),
        ("mesh", 6, {"dimensions": [2, 3]}),
        ("ring", 5, {"channels": 2, "both_directions": True}),
        ("double-binary-tree", 7, {}),
        ("direct", 5, {"in_flight": 2}),
        ("halving-doubling", 8, {}),
        ("hierarchical", 12, {"dimensions": [3, 4]}),
    ],
)
@pytest.mark.parametrize(
    "schedule",
    [Chunking(), Chunking(chunks=5, in_flight=2, order=CollectiveOrder.LIFO)],
    ids=["whole", "chunks"],
)
def test_threads_never_keep_each_other_from_the_next_message(
    name: str, ranks: int, options: dict[str, Any], schedule: Chunking
) -> None:
    expected = torch.arange(720, dtype=torch.float32) * ranks + ranks * (ranks - 1) / 2
    for tensor in all_reduced(name, ranks, schedule, **options):
        assert torch.equal(tensor, expected)

"""The program that a rank replays: the nodes of its trace as plain JSON lines, `replay/NNN.jsonl`
in the run directory, and the process groups of all ranks in `replay/groups.json`.

Traces are read and checked outside of the kernel (`analysis.chakra`); a rank gets only this.
A line: `{"id", "name", "after": [ids], "kind"}` and, by kind,
`compute` {"duration_ns", "flops", "memory_bytes", "on_host", "stream"}, `collective` {"collective",
"size_bytes", "element_bytes", "ranks", "root", "place"}, `send` and `receive` {"peer",
"size_bytes", "tag"}.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from collectives.kinds import Kind


class ReplayNode(BaseModel):
    """A node of a rank's program; `after` are the ids that must be done before it starts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    name: str
    after: tuple[int, ...] = ()


class ReplayCompute(ReplayNode):
    """Computation that takes `duration_ns`, whatever its operations and bytes of memory."""

    kind: Literal["compute"]
    duration_ns: int = Field(ge=0)
    flops: int = 0
    memory_bytes: int = 0
    on_host: bool = False
    """Whether it is the host's, beside what the device computes."""
    stream: int = 0
    """The device's: streams compute beside each other."""

    @property
    def line(self) -> int:
        """That in which nodes follow each other."""
        return -1 if self.on_host else self.stream


class ReplayCollective(ReplayNode):
    """This rank's part in a collective of `ranks`; sizes as nccl-tests defines them."""

    kind: Literal["collective"]
    collective: str
    size_bytes: int = Field(ge=0)
    element_bytes: int = 4
    ranks: tuple[int, ...]
    root: int = 0
    place: int
    """Among those that the rank begins in this group, the same at all members."""


class ReplayMessage(ReplayNode):
    """A message to or from rank `peer`; messages of two ranks meet by tag, in order."""

    kind: Literal["send", "receive"]
    peer: int
    size_bytes: int = Field(gt=0)
    tag: int = 0


ProgramNode = Annotated[
    ReplayCompute | ReplayCollective | ReplayMessage, Field(discriminator="kind")
]
_NODE: TypeAdapter[ReplayCompute | ReplayCollective | ReplayMessage] = TypeAdapter(ProgramNode)
DIRECTORY = "replay"
NOTES = "notes.json"
"""In it, what is replayed otherwise than the traces say, in words."""
_ELEMENT_BYTES = 4


def replayed_element_bytes(element_bytes: int) -> int:
    """The bytes of an element of a replayed collective."""
    return element_bytes if element_bytes == 2 else _ELEMENT_BYTES


def whole_elements(size_bytes: int) -> int:
    """The bytes of a message when it is replayed."""
    return max(size_bytes // _ELEMENT_BYTES, 1) * _ELEMENT_BYTES


def read_program(
    directory: Path, rank: int
) -> list[ReplayCompute | ReplayCollective | ReplayMessage]:
    """The program of a rank, in order of node ids. Raises OSError, pydantic.ValidationError."""
    lines = (directory / f"{rank:03d}.jsonl").read_text().splitlines()
    return sorted((_NODE.validate_json(line) for line in lines), key=lambda node: node.id)


def read_groups(directory: Path) -> list[tuple[int, ...]]:
    """The groups of all ranks' programs, the world left out, in the order of their making."""
    return [tuple(ranks) for ranks in json.loads((directory / "groups.json").read_text())]


def at_once_bytes(program: Sequence[ReplayCompute | ReplayCollective | ReplayMessage]) -> int:
    """The most bytes that a rank is likely to exchange at one time: of all nodes that are equally
    many dependencies behind the program's start. The result of a gather or an incast counts twice.
    """
    followers: dict[int, list[int]] = defaultdict(list)
    for node in program:
        for before in set(node.after):
            followers[before].append(node.id)
    nodes = {node.id: node for node in program}
    waits = {node.id: len(set(node.after)) for node in program}
    bytes_at: list[int] = []
    ready = [id for id, count in waits.items() if not count]
    while ready:
        bytes_at.append(sum(_exchanged_bytes(nodes[id]) for id in ready))
        reached = [follower for id in ready for follower in followers[id]]
        for id in reached:
            waits[id] -= 1
        ready = [id for id in dict.fromkeys(reached) if not waits[id]]
    return max(bytes_at, default=0)


def _exchanged_bytes(node: ReplayCompute | ReplayCollective | ReplayMessage) -> int:
    if isinstance(node, ReplayCompute):
        return 0
    gathers = isinstance(node, ReplayCollective) and node.collective in (Kind.GATHER, Kind.INCAST)
    return node.size_bytes * (2 if gathers else 1)

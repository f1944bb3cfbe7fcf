"""Trees that a program's group is given when it is made: asked for, and told to all who take part.

Whoever gives them is beside the network, as SHARP's aggregation manager is. Files and pipes below
one directory say what is asked and answered, which takes no virtual time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from topologies.spec.collectives_section import CollectivesOfRun, TreeOfGroup
from workloads.execution.aggregation.place import TreePlace
from workloads.execution.traffic_class import TrafficClass

DIRECTORY_VARIABLE = "GROUNDWIRE_AGGREGATION"
"""The directory of a program's job; absent where switches do not take part."""
_ASK = "ask"
_numbers = count()


@dataclass(frozen=True, slots=True)
class GivenTrees:
    """The trees of one group. `section` is the plan of its collectives, with these trees, as JSON;
    `directories` are those of each tree, `interfaces` those of each participant in each tree,
    `traffic` is the class of the switches' packets."""

    section: dict[str, Any]
    directories: tuple[str, ...]
    interfaces: tuple[tuple[str, ...], ...]
    traffic: tuple[int, int]

    @property
    def collectives(self) -> CollectivesOfRun:
        """The section."""
        return CollectivesOfRun.model_validate_json(json.dumps(self.section))

    def place(self, number: int, tree: TreeOfGroup, participant: int, at_switch: bool) -> TreePlace:
        """The place of a participant in its group's `number`th tree. A rank's packets have the
        class of its process."""
        own = TrafficClass(*self.traffic) if at_switch else TrafficClass()
        return TreePlace(
            participant,
            tree.parents,
            self.interfaces[number][participant],
            Path(self.directories[number]),
            own,
            tree.part,
            tree.parts,
        )

    def to_json(self) -> str:
        """For `from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> GivenTrees:
        """Raises ValueError, KeyError, TypeError."""
        found = json.loads(text)
        interfaces = tuple(tuple(names) for names in found.pop("interfaces"))
        directories = tuple(found.pop("directories"))
        return cls(
            **(found | {"traffic": tuple(found["traffic"])}),
            directories=directories,
            interfaces=interfaces,
        )


@dataclass(frozen=True, slots=True)
class AskedTrees:
    """A group that asks for trees: its ranks, and the section that its collectives are planned by.
    `answer` is the pipe that tells when the file beside it has the answer."""

    members: tuple[int, ...]
    section: dict[str, Any]
    answer: Path

    @property
    def file(self) -> Path:
        """The file with the answer, `GivenTrees` as JSON."""
        return answer_file(self.answer)


def ask_pipe(directory: Path) -> Path:
    """The pipe on which groups ask, and switches tell of trees that nobody uses any more."""
    return directory / _ASK


def node_pipe(directory: Path, switch: str) -> Path:
    """The pipe in which a switch is told of the trees that it is in."""
    return directory / f"node.{switch}"


def ask(directory: Path, members: Sequence[int], section: dict[str, Any]) -> str:
    """Ask for a group's trees, as one of its ranks does for all; returns them as JSON. Raises
    OSError."""
    name = f"{members[0]}.{os.getpid()}.{next(_numbers)}"
    answer = directory / f"answer.{name}"
    os.mkfifo(answer)
    asked = directory / f"asked.{name}"
    asked.write_text(json.dumps({"members": list(members), "section": section}))
    # For both ways, here and below: to open it for one alone would wait for the other end.
    heard = os.open(answer, os.O_RDWR)
    try:
        tell(ask_pipe(directory), {"asked": str(asked), "answer": str(answer)})
        os.read(heard, 1)
    finally:
        os.close(heard)
    return answer_file(answer).read_text()


def read_asked(line: dict[str, Any]) -> AskedTrees:
    """The question of a line on the pipe. Raises OSError, ValueError."""
    found = json.loads(Path(line["asked"]).read_text())
    return AskedTrees(tuple(found["members"]), found["section"], Path(line["answer"]))


def answer(asked: AskedTrees, given: GivenTrees) -> None:
    """Tell a group its trees. Raises OSError."""
    asked.file.write_text(given.to_json())
    tell(asked.answer, {})


def answer_file(pipe: Path) -> Path:
    """The file with the answer that a pipe tells of."""
    return pipe.with_name(f"{pipe.name}.json")


def tell(pipe: Path, what: dict[str, Any]) -> None:
    """A line into a pipe that somebody reads. Raises OSError."""
    descriptor = os.open(pipe, os.O_RDWR)
    # In one piece: it is shorter than PIPE_BUF (pipe(7)).
    os.write(descriptor, (json.dumps(what) + "\n").encode())
    os.close(descriptor)


def told(pipe: Path) -> Iterator[dict[str, Any]]:
    """The lines of a pipe, up to the last one, which is `{}`."""
    descriptor = os.open(pipe, os.O_RDWR)
    try:
        with os.fdopen(descriptor, closefd=False) as lines:
            while line := json.loads(lines.readline()):
                yield line
    finally:
        os.close(descriptor)

"""The parts that a transport has to have for ranks."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from topologies.spec.transports.connections import ONE, Connections

if TYPE_CHECKING:  # who starts programs of users needs no torch
    import torch
    import torch.distributed as dist

TRANSPORT_VARIABLE = "GROUNDWIRE_TRANSPORT"
"""The transport of torch's backend for programs' messages, by kind."""


def place_variable(kind: str) -> str:
    """The variable of a program's environment that has the place of its ranks, as JSON."""
    return f"GROUNDWIRE_{kind.upper()}_PLACE"


CONNECTIONS_VARIABLE = "GROUNDWIRE_CONNECTIONS"
"""The variable of a program's environment that says how its ranks' sockets are to be spread."""


def connections_variable(between: Connections) -> Mapping[str, str]:
    """The environment of programs whose ranks have such connections; nothing for one."""
    return {} if between.count == 1 else {CONNECTIONS_VARIABLE: json.dumps(asdict(between))}


def connections_from(environment: Mapping[str, str]) -> Connections:
    """The connections that a run asks its programs for."""
    text = environment.get(CONNECTIONS_VARIABLE)
    return ONE if text is None else Connections(**json.loads(text))


class Message(Protocol):
    """A message under way at one of its ends."""

    def wait(self) -> object:
        """Block until it is received, or has been sent."""


class Links(Protocol):
    """The ends of a rank in one group, with the others' there. They stand in for torch's group
    where programs send and receive; peers are numbers in the group."""

    def send(self, tensors: list[torch.Tensor], peer: int, slot: int) -> Message:
        """As torch's groups have it."""

    def recv(self, tensors: list[torch.Tensor], peer: int, slot: int) -> Message:
        """As torch's groups have it."""


class EndLog(Protocol):
    """The log of ends: that of the rank's other events."""

    def end(self, event: str, group: str, peer: int, told: Mapping[str, Any]) -> None:
        """The `event` of an end with another rank, for a group's messages, and what is `told` of
        it."""


class RankEnds(ABC):
    """The ends that a rank has of a transport, once it is in its network namespace."""

    @property
    @abstractmethod
    def place(self) -> Place:
        """The place that they were opened at."""

    @abstractmethod
    def links(
        self, store: dist.Store, name: str, ranks: Sequence[int], me: int, log: EndLog
    ) -> Links:
        """The ends of a group, to be made by all its `ranks` together. `store` is theirs alone;
        `me` is the rank of the run."""

    @abstractmethod
    def finish(self, log: EndLog) -> None:
        """Log what is known at the end of the workload."""


class Place(ABC):
    """The place where a rank finds what its ends need, before it starts. `directory` has the logs
    of ranks."""

    directory: Path

    @property
    @abstractmethod
    def ranks(self) -> int:
        """How many ranks the run has."""

    @abstractmethod
    def to_json(self) -> str:
        """As an environment has it."""

    @abstractmethod
    def open(self) -> RankEnds:
        """The ends."""


class RankTransport(ABC):
    """A transport as ranks have it."""

    @abstractmethod
    def place(self, text: str | None) -> Place | None:
        """The place that `Place.to_json` wrote; None where messages of programs go through
        sockets, too. Raises ValueError, TypeError or KeyError where `text` is no such place, and
        LookupError, which says what there is not, where it is absent."""

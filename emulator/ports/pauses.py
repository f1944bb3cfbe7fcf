"""A process that pauses and resumes ports while they are up, as the operators of a network see
it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Reaction:
    """How long the controller took, over all pauses of a run: from XOFF to the closed plug. `port`
    is where the worst one was, against what is allowed there."""

    pauses: int
    mean_ns: int
    worst_ns: int
    allowed_ns: int
    period_ns: int
    port: str

    def as_dict(self) -> dict[str, object]:
        """Plain data, for environment.json."""
        return asdict(self)


class PauseControl(Protocol):
    """The controller, from `start` to `stop` (`switches.pause_controller` is one)."""

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        ...

    def start(self) -> None:
        """Returns when it watches. Raises OSError."""
        ...

    def stop(self) -> None:
        """Can be called again."""
        ...

    def reaction(self) -> Reaction | None:
        """The measurements so far; None before the first pause."""
        ...

    def lost(self) -> int:
        """The packets that came when the headroom was full, though it is all that links need."""
        ...

    def held(self) -> Mapping[int, tuple[int, int]]:
        """Egress port number -> (how many of its plugs are closed, how often one was closed)."""
        ...

"""The members' programs of one collective: what each posts, and what it waits for next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from analysis.predictors.gloo_schedule import Post, Step


@dataclass(slots=True)
class Start:
    """Messages that a member posts at once, by number: its sends and its receives."""

    sends: list[int]
    receives: list[int]
    sends_first: bool = False


@dataclass(slots=True)
class Await:
    """What a member waits for."""

    sends: list[int]
    receives: list[int]


class Programs(ABC):
    """Every member's posts and waits, run as far as the messages allow. How messages travel is a
    subclass's: it gets `_start`, and says `_has_sent` and `_has_received`. Times are in ns.
    """

    def __init__(self, steps: Iterable[Step], world: int) -> None:
        self._source: list[int] = []
        self._destination: list[int] = []
        self._programs: list[list[Start | Await]] = [[] for _ in range(world)]
        self._compile(steps)
        messages = len(self._source)
        self._posted = bytearray(messages)
        self._invited = bytearray(messages)
        self._sent = bytearray(messages)
        self._received = bytearray(messages)
        self._position = [0] * world
        self.completed_ns = [0.0] * world

    def _compile(self, steps: Iterable[Step]) -> None:
        posts: list[range] = []
        for step in steps:
            if isinstance(step, Post):
                first = len(self._source)
                self._source += step.source.tolist()
                self._destination += step.destination.tolist()
                posts.append(range(first, len(self._source)))
                self._append(posts[-1], Start, True, True)
                if step.sends_first:
                    self._send_first(posts[-1])
            else:
                self._append(posts[step.post], Await, step.sends, step.receives)

    def _append(
        self, messages: range, kind: type[Start] | type[Await], sends: bool, receives: bool
    ) -> None:
        parts: dict[int, Start | Await] = {}
        for message in messages:
            if sends:
                member = self._source[message]
                parts.setdefault(member, kind([], [])).sends.append(message)
            if receives:
                member = self._destination[message]
                parts.setdefault(member, kind([], [])).receives.append(message)
        for member, part in parts.items():
            self._programs[member].append(part)

    def _send_first(self, messages: range) -> None:
        for member in {self._source[m] for m in messages}:
            operation = self._programs[member][-1]
            assert isinstance(operation, Start)
            operation.sends_first = True

    @abstractmethod
    def _start(self, operation: Start, now: float) -> None:
        """A member posts messages."""

    def _begin(self) -> None:
        """All members set out at time 0; who is first matters where ports serve in order, and in
        the virtual kernel that is the last one."""
        for member in reversed(range(len(self._programs))):
            self._advance(member, 0.0)

    def _post_sends(self, messages: list[int], now: float) -> None:
        for message in messages:
            self._posted[message] = 1
            if self._invited[message]:
                self._admit(message, now)

    @abstractmethod
    def _admit(self, message: int, now: float) -> None:
        """A message is posted and invited: its payload goes to the socket."""

    def _has_been_invited(self, message: int, now: float) -> None:
        self._invited[message] = 1
        if self._posted[message]:
            self._admit(message, now)

    def _has_sent(self, message: int, now: float) -> None:
        self._sent[message] = 1
        self._wake(self._source[message], now)

    def _has_received(self, message: int, now: float) -> None:
        self._received[message] = 1
        self._advance(self._destination[message], now)

    def _wake(self, member: int, now: float) -> None:
        position = self._position[member]
        program = self._programs[member]
        if position < len(program) and isinstance(program[position], Await):
            self._advance(member, now)

    def _advance(self, member: int, now: float) -> None:
        """Run a member's program up to the first wait that is not satisfied."""
        program = self._programs[member]
        position = self._position[member]
        while position < len(program):
            operation = program[position]
            if isinstance(operation, Await):
                if not all(self._sent[m] for m in operation.sends) or not all(
                    self._received[m] for m in operation.receives
                ):
                    break
            else:
                # _admit may come back here, and must find this operation behind it.
                self._position[member] = position + 1
                self._start(operation, now)
            position += 1
        self._position[member] = max(self._position[member], position)
        self.completed_ns[member] = now

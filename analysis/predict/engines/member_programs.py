"""The members' programs of collectives, run operation by operation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque

from collectives.schedule.operations import (
    Await,
    CompiledPrograms,
    Do,
    Mark,
    Occupy,
    Pause,
    Sleep,
    Start,
)


class Programs(ABC):
    """Every member's posts and waits, run as far as the messages allow. How messages travel is a
    subclass's: it gets `_start`, and says `_has_sent` and `_has_received`. Times are in ns.
    """

    def __init__(self, compiled: CompiledPrograms) -> None:
        self._source = compiled.source
        self._destination = compiled.destination
        self._sender = compiled.sender
        self._receiver = compiled.receiver
        self._programs = compiled.programs
        messages = len(self._source)
        self._posted = bytearray(messages)
        self._invited = bytearray(messages)
        self._sent = bytearray(messages)
        self._received = bytearray(messages)
        self._marked: set[int] = set()
        self._asleep: set[int] = set()
        self._free_ns: dict[int, float] = {}
        self._position = [0] * len(self._programs)
        self.completed_ns = [0.0] * len(self._programs)
        # Members that wait for what is another's.
        self._watching: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._ready: deque[int] = deque()
        # Where switches take part there is no such lock at their nodes, and each goes on at once.
        self._has_nodes = compiled.has_nodes

    @abstractmethod
    def _start(self, operation: Start, now: float) -> None:
        """A member posts messages."""

    @abstractmethod
    def _wake_at(self, member: int, at: float) -> None:
        """Have `_has_slept` called at this time."""

    def _has_slept(self, member: int, now: float) -> None:
        self._asleep.discard(member)
        self._advance(member, now)

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
        self._wake(self._sender[message], now)
        self._tell("sent", message, now)

    def _has_received(self, message: int, now: float) -> None:
        self._received[message] = 1
        if self._has_nodes:
            self._advance(self._receiver[message], now)
        self._tell("received", message, now)

    def _tell(self, what: str, number: int, now: float) -> None:
        """The member that waited first goes on first, as it holds the lock that all of them wait
        for."""
        waited = dict.fromkeys(self._watching.pop((what, number), ()))
        for member in sorted(waited) if self._has_nodes else waited:
            self._wake(member, now)

    def _wake(self, member: int, now: float) -> None:
        position = self._position[member]
        program = self._programs[member]
        if position < len(program) and isinstance(program[position], Await):
            self._advance(member, now)

    def _advance(self, member: int, now: float) -> None:
        """Run a member's program up to the first wait that is not satisfied, and then those that it
        woke: one thread runs at a time, until it waits."""
        if self._has_nodes:
            self._run_to_wait(member, now)
            return
        self._ready.append(member)
        if len(self._ready) > 1:
            return
        while self._ready:
            self._run_to_wait(self._ready[0], now)
            self._ready.popleft()

    def _run_to_wait(self, member: int, now: float) -> None:
        if member in self._asleep:
            return
        program = self._programs[member]
        while self._position[member] < len(program):
            operation = program[self._position[member]]
            if isinstance(operation, Await) and not self._is_over(operation, member):
                break
            # The next operation may come back here, and must find this one behind it.
            self._position[member] += 1
            if isinstance(operation, Start):
                self._start(operation, now)
            elif isinstance(operation, Mark):
                self.mark(operation.number, now)
            elif isinstance(operation, Do):
                operation.call(self, now)
            elif isinstance(operation, Pause):
                self._asleep.add(member)
                self._wake_at(member, now + operation.duration_ns)
                return
            elif isinstance(operation, Sleep):
                self._asleep.add(member)
                self._wake_at(member, max(now, operation.until_ns()))
                return
            elif isinstance(operation, Occupy):
                begins = max(now, self._free_ns.get(operation.unit, 0.0))
                self._free_ns[operation.unit] = begins + operation.duration_ns
                self._asleep.add(member)
                self._wake_at(member, begins + operation.duration_ns + operation.latency_ns)
                return
        self.completed_ns[member] = now

    def mark(self, number: int, now: float) -> None:
        """Tell those who wait for a mark that it is made."""
        self._marked.add(number)
        self._tell("mark", number, now)

    def _is_over(self, wait: Await, member: int) -> bool:
        for message in wait.sends:
            if not self._sent[message]:
                if self._sender[message] != member:
                    self._watching["sent", message].append(member)
                return False
        for message in wait.receives:
            if not self._received[message]:
                if not self._has_nodes or self._receiver[message] != member:
                    self._watching["received", message].append(member)
                return False
        for mark in wait.marks:
            if mark not in self._marked:
                self._watching["mark", mark].append(member)
                return False
        return True

"""A system layer: joint programs run operation by operation, above an engine that is driven."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial

from analysis.predict.engines.joint_programs import JointPrograms
from collectives.schedule.operations import Await, Do, Mark, Pause, Start
from simulation.driven_engine import DrivenEngine


class SystemLayer:
    """Every member's posts and waits, run as far as the messages allow."""

    def __init__(self, joint: JointPrograms, network: DrivenEngine) -> None:
        self._compiled = joint.compiled
        self._sizes = joint.size_bytes.tolist()
        self._ranks = joint.ends.tolist()
        self._network = network
        self._over: set[tuple[str, int]] = set()
        self._watching: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._position = [0] * len(joint.compiled.programs)
        self._asleep: set[int] = set()
        self._ready: deque[int] = deque()

    def run(self) -> None:
        """From time 0 until nothing happens. All members set out at once; who is first matters
        where ports serve in order, and in the virtual kernel that is the last one."""
        for member in reversed(range(len(self._position))):
            self._advance(member)
        self._network.run()

    def mark(self, number: int, now: float) -> None:
        """As of `Runner`."""
        self._tell("mark", number)

    def _tell(self, what: str, number: int) -> None:
        """The member that waited first goes on first, as it holds the lock that all wait for."""
        self._over.add((what, number))
        waited = dict.fromkeys(self._watching.pop((what, number), ()))
        if what == "sent":
            waited = {self._compiled.sender[number]: None} | waited
        for member in waited:
            program, position = self._compiled.programs[member], self._position[member]
            if position < len(program) and isinstance(program[position], Await):
                self._advance(member)

    def _advance(self, member: int) -> None:
        """Run a member up to its first wait that is not over, and then those that it woke: one
        thread runs at a time, until it waits."""
        self._ready.append(member)
        if len(self._ready) > 1:
            return
        while self._ready:
            self._run_to_wait(self._ready[0])
            self._ready.popleft()

    def _run_to_wait(self, member: int) -> None:
        program = self._compiled.programs[member]
        while member not in self._asleep and self._position[member] < len(program):
            operation = program[self._position[member]]
            if isinstance(operation, Await) and not self._is_over(operation, member):
                return
            # The next operation may come back here, and must find this one behind it.
            self._position[member] += 1
            match operation:
                case Start():
                    self._start(operation)
                case Mark(number):
                    self._tell("mark", number)
                case Do(call):
                    call(self, float(self._network.now_ns))
                case Pause(duration_ns):
                    self._asleep.add(member)
                    self._network.sleep(round(duration_ns), partial(self._wake, member))
                case Await():
                    pass
                case _:
                    raise AssertionError(f"{operation} is in no program of these tests")

    def _wake(self, member: int) -> None:
        self._asleep.discard(member)
        self._advance(member)

    def _is_over(self, wait: Await, member: int) -> bool:
        needed = [("sent", each) for each in wait.sends]
        needed += [("received", each) for each in wait.receives]
        needed += [("mark", each) for each in wait.marks]
        for each in needed:
            if each not in self._over:
                self._watching[each].append(member)
                return False
        return True

    def _start(self, operation: Start) -> None:
        if operation.sends_first:
            self._send(operation.sends)
        for message in operation.receives:
            then = partial(self._tell, "received", message)
            self._network.receive(*self._of(message), tag=message, then=then)
        if not operation.sends_first:
            self._send(operation.sends)

    def _send(self, messages: list[int]) -> None:
        for message in messages:
            then = partial(self._tell, "sent", message)
            self._network.send(*self._of(message), tag=message, then=then)

    def _of(self, message: int) -> tuple[int, int, int]:
        source, destination = self._compiled.source[message], self._compiled.destination[message]
        return self._ranks[source], self._ranks[destination], self._sizes[message]

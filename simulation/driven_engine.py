"""The packet engine driven from outside: messages are posted one by one, callbacks are called when
something becomes of them, and time goes on as far as it is told to."""

from __future__ import annotations

import struct
import subprocess
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from enum import IntEnum
from types import TracebackType

import numpy as np

from simulation.building import engine_environment, engine_program
from simulation.columns import Column, pack, unpack
from simulation.failure import SimulationError
from simulation.timeline import EngineTimeline

Callback = Callable[[], None]


class _Command(IntEnum):
    """`Serving::What` of engine/serving.hpp."""

    SEND = 1
    RECEIVE = 2
    SCHEDULE = 3
    SLEEP = 4
    RUN = 5
    STEP = 6
    GO_ON = 7
    FINISH = 8
    PART = 9
    BEGIN = 10
    RUN_TO_CALL = 11
    SHOOK_HANDS = 12


_COMMAND = struct.Struct("<6q")
_REPORT = struct.Struct("<4q")
_CALLS = 1
"""`Serving::Reported`: a callback is due; else what was asked for is done."""


def driven(scenario: Mapping[str, Column], *, announced: bool = True) -> dict[str, Column]:
    """A scenario without messages and programs, as one that is driven. `announced`: a message waits
    for its receive, as Gloo's do; else it leaves when it is sent."""
    return {**scenario, "driven": np.array([int(announced)], dtype=np.int64)}


class DrivenEngine:
    """An engine's process, as a context: it ends with that.

    Callbacks have no arguments, and are called by `step` and `run` alone, one after the other.
    Messages that they post are posted at `now_ns`, before anything else happens. Messages that are
    posted outside of callbacks are posted at `now_ns` too, once all that falls on that nanosecond
    has happened.

    Raises SimulationError where the engine cannot be had.
    """

    def __init__(self, network: Mapping[str, Column], program: str | None = None) -> None:
        """The columns of a network that is driven, without messages and programs, from
        `driven`, and the engine's `program` (None: `engine_program`)."""
        self.now_ns = 0
        """The time that it is."""
        self._next_ns: int | None = None
        self._callbacks: dict[int, Callback] = {}
        self._numbers = self._parts = 0
        self._commands = bytearray()
        self._runs = False
        self._open = ExitStack()
        self._process = self._open.enter_context(
            subprocess.Popen(
                [program or str(engine_program())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=engine_environment(),
            )
        )
        self._open.callback(self._process.kill)
        self._open.callback(self._hang_up)
        for part in pack(network):
            self._write(part)

    def __enter__(self) -> DrivenEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the engine."""
        self._open.close()

    def send(
        self,
        source: int,
        destination: int,
        size_bytes: int,
        *,
        tag: int = 0,
        then: Callback | None = None,
    ) -> None:
        """Post a message. It meets the receive of the same ends and tag that was posted first.
        `then` is called once all of it is in the socket; over RoCE, once it is acknowledged."""
        self._post(_Command.SEND, source, destination, tag, size_bytes, then)

    def receive(
        self,
        source: int,
        destination: int,
        size_bytes: int,
        *,
        tag: int = 0,
        then: Callback | None = None,
    ) -> None:
        """Post a receive at the destination; `then` is called once the message is there."""
        self._post(_Command.RECEIVE, source, destination, tag, size_bytes, then)

    def part(self, words: Sequence[int]) -> int:
        """Tell what a rank does in a collective (`PartsOfRanks`); its number, for `begin`."""
        number = self._parts
        self._parts += 1
        self._command(_Command.PART, 0, 0, number, len(words), -1)
        self._commands += array("q", words).tobytes()
        return number

    def begin(
        self, part: int, ranks: Sequence[int], first_tag: int, then: Callback, pool: int = 0
    ) -> None:
        """Have a rank do its part in a collective of these ranks, whose tags count from
        `first_tag`; `then` is called once it has done it. Others may use those tags at other
        times, or between other ranks. A rank's chunks take the threads that those of this `pool`
        before them have left."""
        number = self._numbers
        self._numbers += 1
        self._callbacks[number] = then
        self._command(_Command.BEGIN, part, pool, first_tag, len(ranks), number)
        self._commands += array("q", ranks).tobytes()

    def shook_hands(
        self, source: int, destination: int, handshake_us: int, greeting_us: int = -1
    ) -> None:
        """Tell what the source measured when it connected with the destination: the round trip of
        the handshake, and of the bytes that it sent first (-1: nothing tells). Without it they are
        those of an idle fabric. It is heeded until the source has sent something."""
        words = source, destination, handshake_us, greeting_us
        self._command(_Command.SHOOK_HANDS, *words, -1)

    def schedule(self, delay_ns: int, then: Callback) -> None:
        """Have something called so much later."""
        self._post(_Command.SCHEDULE, 0, 0, 0, delay_ns, then)

    def sleep(self, delay_ns: int, then: Callback) -> None:
        """As `schedule`, by a thread of Linux that sleeps: it goes on a nanosecond later, unless
        something else interrupts in time."""
        self._post(_Command.SLEEP, 0, 0, 0, delay_ns, then)

    def step(self) -> bool:
        """Do all of the next nanosecond in which something happens; whether there is one."""
        before = self.next_ns()
        if before is not None:
            self._go(_Command.STEP, 0)
        return before is not None

    def run(self, until_ns: int | None = None) -> None:
        """Follow all that happens up to a time, which it is then; without one until nothing
        happens any more, which may be timers of TCP long after the last callback. Exceptions of
        callbacks come through, and leave nothing to go on with."""
        if until_ns is not None and until_ns < self.now_ns:
            raise ValueError(f"found a time of {until_ns} ns, allowed {self.now_ns} and later")
        self._go(_Command.RUN, -1 if until_ns is None else until_ns)

    def run_to_call(self, until_ns: int) -> None:
        """As `run`, but time goes no further than to the nanosecond of the next callbacks."""
        self._go(_Command.RUN_TO_CALL, until_ns)

    def next_ns(self) -> int | None:
        """When the next thing happens; None where nothing does until something is posted."""
        if self._commands:
            # A message that is posted now leaves now at the earliest, and only the engine knows
            # what happens next.
            self._go(_Command.RUN, self.now_ns)
        return self._next_ns

    def finish(self) -> EngineTimeline:
        """The counts of ports and connections by now; the engine ends."""
        self._command(_Command.FINISH, 0, 0, 0, 0, -1)
        self._flush()
        assert self._process.stdout is not None
        found = self._process.stdout.read()
        if self._process.wait() != 0:
            raise self._refusal()
        self.close()
        return EngineTimeline(unpack(found))

    def _post(
        self,
        what: _Command,
        source: int,
        destination: int,
        tag: int,
        size: int,
        then: Callback | None,
    ) -> None:
        if size < 0:
            raise ValueError(f"found {size}, allowed 0 and more")
        number = -1
        if then is not None:
            number = self._numbers
            self._numbers += 1
            self._callbacks[number] = then
        self._command(what, source, destination, tag, size, number)

    def _command(self, what: _Command, *numbers: int) -> None:
        self._commands += _COMMAND.pack(what, *numbers)

    def _go(self, what: _Command, until_ns: int) -> None:
        if self._runs:
            raise ValueError("a callback runs the engine that called it")
        self._runs = True
        try:
            self._command(what, 0, 0, 0, until_ns, -1)
            while (due := self._told()) is not None:
                self._callbacks.pop(due)()
                self._command(_Command.GO_ON, 0, 0, 0, 0, -1)
        finally:
            self._runs = False

    def _told(self) -> int | None:
        """Has the engine do what it was told; the callback that is due, None once all is done."""
        self._flush()
        assert self._process.stdout is not None
        told = self._process.stdout.read(_REPORT.size)
        if len(told) < _REPORT.size:
            raise self._refusal()
        kind, self.now_ns, following, number = _REPORT.unpack(told)
        self._next_ns = None if following < 0 else following
        return int(number) if kind == _CALLS else None

    def _flush(self) -> None:
        self._write(self._commands)
        self._commands = bytearray()

    def _write(self, part: bytes | bytearray | memoryview) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(part)
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._refusal() from error

    def _hang_up(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # what it did not read any more
            self._process.stdin.close()

    def _refusal(self) -> SimulationError:
        """The engine's own words."""
        if self._process.stderr is None or self._process.stderr.closed:
            return SimulationError("packet engine: it has ended")
        words = self._process.stderr.read().decode(errors="replace").strip()
        status = self._process.wait()
        return SimulationError(f"packet engine: {words or f'ended with status {status}'}")

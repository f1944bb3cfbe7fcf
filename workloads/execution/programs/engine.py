"""Runs collectives as programs, beside Gloo's own, over one process group."""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, ClassVar
from weakref import WeakSet

import torch

from collectives.program import Program
from collectives.schedule.lines import Lines
from collectives.schedule.program import FIRST_SLOT, ProgramSchedule
from collectives.schedule.schedule import Chunk
from collectives.start_order import CollectiveOrder, StartOrder
from collectives.waits import Waits, waits_of
from workloads.execution.clock import now_ns, sleep_until_ns
from workloads.execution.payload.tensors import OWN_TENSORS, Tensors
from workloads.execution.programs.chunk_run import ChunkRun
from workloads.execution.programs.memory import ChunkMemory
from workloads.execution.programs.reductions import SUM, Combine
from workloads.execution.programs.turns import RankTurns

_LAST_SLOT = 1 << 31
"""torch takes tags that are not negative and fit into 32 bits."""


@dataclass(frozen=True, slots=True)
class ChunkTimes:
    """When a chunk ran at this rank, and each of its phases, by name."""

    chunk: int
    start_ns: int
    end_ns: int
    phases: tuple[tuple[str, int, int], ...]


class ProgramWork:
    """A collective that is under way, as torch's works are: it can be waited for, and is its own
    future."""

    def __init__(self, chunks: int) -> None:
        self._left = chunks
        self._lock = Lock()
        self._over = Event()
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[ProgramWork], None]] = []

    def wait(self) -> None:
        """Block until it is complete. Raises what torch raised in one of its messages."""
        self._over.wait()
        if self._error is not None:
            raise self._error

    def is_over(self) -> bool:
        """Whether it is complete. Raises what torch raised in one of its messages."""
        if self._over.is_set() and self._error is not None:
            raise self._error
        return self._over.is_set()

    @property
    def error(self) -> BaseException | None:
        """The exception of torch in one of its messages, if there was one."""
        return self._error

    def get_future(self) -> ProgramWork:
        return self

    def add_done_callback(self, callback: Callable[[ProgramWork], None]) -> None:
        """Have it called when the work is complete: at once when it is."""
        with self._lock:
            if not self._over.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def chunk_done(self) -> None:
        """One more chunk is complete."""
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._end()

    def failed(self, error: BaseException) -> None:
        """A chunk will not complete."""
        self._error = error
        self._end()

    @classmethod
    def of_all(cls, parts: Sequence[ProgramWork]) -> ProgramWork:
        """A work that is complete when all its parts are."""
        if len(parts) == 1:
            return parts[0]
        whole = cls(len(parts))

        def ended(part: ProgramWork) -> None:
            if part.error is not None:
                whole.failed(part.error)
            whole.chunk_done()

        for part in parts:
            part.add_done_callback(ended)
        return whole

    def _end(self) -> None:
        with self._lock:
            # Whoever is told knows this work: to keep them would keep its tensors for ever.
            callbacks, self._callbacks = self._callbacks, []
            self._over.set()
        for callback in callbacks:
            callback(self)


@dataclass(frozen=True, slots=True)
class _Task:
    chunk: Chunk
    group: Any
    source: torch.Tensor
    target: torch.Tensor
    first_slot: int
    turns: RankTurns | None
    work: ProgramWork
    report: Callable[[ChunkTimes], None]
    combine: Combine
    tensors: Tensors
    has_slot: bool
    """Whether it is one of the chunks in flight, whose number is bounded."""
    hold: Callable[[Chunk], AbstractContextManager[None]]
    """The memory that it has to itself while it runs."""
    endpoint_delay_ns: int
    """The rank's time to inject each of its messages."""
    launch_ns: int
    """The rank's time before the chunk's first message."""
    lines: Lines


def _holds_nothing(chunk: Chunk) -> AbstractContextManager[None]:
    return nullcontext()


Agree = Callable[[int, Callable[[int | BaseException], None]], None]
"""Starts to find the maximum of a number over all ranks; calls back with it, or with what torch
raised."""


class ProgramEngine:
    """The programs of one rank in one group, whose ranks all start the same collectives in the same
    order.

    With chunks in flight bounded, chunks of all collectives start in an order that is the same on
    all ranks (`collectives.start_order`), hence none waits for a chunk that another one cannot
    start. Chunks of a schedule without a bound have a worker each at once.
    """

    def __init__(
        self,
        rank: int,
        in_flight: int = 0,
        order: CollectiveOrder = CollectiveOrder.FIFO,
        passes: Callable[[int, bool], None] | None = None,
    ) -> None:
        """`passes` is called with the bytes of each copy that the program has, and whether it
        follows another one of its sequence: at switches, where a copy is the way through a unit
        that takes time."""
        self._rank = rank
        self._passes = passes
        self._next_slot = FIRST_SLOT
        self._order = StartOrder(order, in_flight) if in_flight else None
        self._posted = 0
        self._waiting: dict[int, deque[_Task]] = {}
        self._lock = Lock()
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        self._known: dict[int, tuple[Program, tuple[tuple[Waits, ...], ...]]] = {}

    def take_slots(self, schedule: ProgramSchedule) -> int:
        """The first of the tags for a collective that is about to be started."""
        needed = schedule.slots
        if self._next_slot + needed > _LAST_SLOT:
            self._next_slot = FIRST_SLOT
        first = self._next_slot
        self._next_slot += needed
        return first

    def start(
        self,
        schedule: ProgramSchedule,
        group: Any,
        source: torch.Tensor,
        target: torch.Tensor,
        first_slot: int,
        report: Callable[[ChunkTimes], None] = lambda times: None,
        agree: Agree | None = None,
        combine: Combine = SUM,
        tensors: Tensors = OWN_TENSORS,
        hold: Callable[[Chunk], AbstractContextManager[None]] = _holds_nothing,
    ) -> ProgramWork:
        """Start a collective; `report` is called with each chunk's times as it ends. With `agree`
        its chunks are among those in flight, where these are bounded; without they are not.
        Buffers beside `source` and `target` are of `tensors`. A chunk runs inside of `hold(chunk)`.
        """
        work = ProgramWork(len(schedule.chunks))
        turns = RankTurns(schedule) if schedule.turns else None
        stride = schedule.slots_per_chunk
        order = self._order if agree is not None else None
        tasks = deque(
            _Task(
                chunk,
                group,
                source,
                target,
                first_slot + chunk.index * stride,
                turns,
                work,
                report,
                combine,
                tensors,
                order is not None,
                hold,
                0 if self._passes is not None else schedule.endpoint_delay_ns,
                0 if self._passes is not None else schedule.launch_ns,
                schedule.lines,
            )
            for chunk in schedule.chunks
        )
        if order is None or agree is None:
            for task in tasks:
                self._free_worker().put(task)
            return work
        with self._lock:
            number = self._posted
            self._posted += 1
            self._waiting[number] = tasks
            proposal = order.post(schedule.priority, len(tasks))
        if order.agrees:
            agree(proposal, partial(self._agreed, order, number, work))
        self._start_next(order)
        return work

    def _agreed(
        self, order: StartOrder, number: int, work: ProgramWork, highest: int | BaseException
    ) -> None:
        if isinstance(highest, BaseException):
            work.failed(highest)
            return
        with self._lock:
            order.agree(number, highest)
        self._start_next(order)

    def _start_next(self, order: StartOrder) -> None:
        """Start what there are slots for."""
        with self._lock:
            while (start := order.next()) is not None:
                tasks = self._waiting[start.collective]
                self._free_worker().put(tasks.popleft())
                if not tasks:
                    del self._waiting[start.collective]

    def _has_ended(self, task: _Task) -> None:
        if task.has_slot and self._order is not None:
            with self._lock:
                self._order.complete()
            self._start_next(self._order)

    def _free_worker(self) -> SimpleQueue[_Task]:
        try:
            return self._idle.get_nowait().tasks
        except Empty:
            return _Worker(self.run, self._has_ended, self._idle).tasks

    def run(self, task: _Task, helpers: list[_Helper]) -> None:
        """Run a chunk in the calling thread, and further sequences of it in helpers."""
        start_ns = now_ns()
        at_switch = self._rank >= task.chunk.program.ranks
        memory = ChunkMemory(task.chunk, task.source, task.target, task.tensors, at_switch)
        run = ChunkRun(
            task.chunk,
            self._rank,
            self._waits(task.chunk.program),
            memory,
            task.group,
            task.first_slot,
            task.turns,
            task.endpoint_delay_ns,
            task.combine,
            task.tensors,
            self._passes,
            task.lines,
        )
        others = range(1, len(run.sequences))
        while len(helpers) < len(others):
            helpers.append(_Helper())
        with task.hold(task.chunk):
            if task.launch_ns:
                sleep_until_ns(start_ns + task.launch_ns)
            futures = [helpers[i - 1].start(run, i) for i in others]
            if run.sequences:
                run.run(0)
            for future in futures:
                future.result()
        memory.finish()
        phases = task.chunk.program.phases
        task.report(
            ChunkTimes(
                task.chunk.index,
                start_ns,
                now_ns(),
                tuple((phases[n].name, *times) for n, times in sorted(run.phases.items())),
            )
        )

    def _waits(self, program: Program) -> tuple[tuple[Waits, ...], ...]:
        if id(program) not in self._known:
            self._known[id(program)] = program, waits_of(program, self._rank)
        return self._known[id(program)][1]


_TELLING_S = 5.0
"""How long a process that ends waits for a thread that is telling that a collective is complete."""


class _Worker:
    """A thread that runs chunks one after the other; when free, it lies in `idle`.

    The main thread may end the process as soon as its last collective is complete, while the worker
    still tells others of it. Python ends a daemon thread where it next asks for the interpreter:
    inside torch's C++ that aborts the process. So the end of the process waits for the telling."""

    _all: ClassVar[WeakSet[_Worker]] = WeakSet()

    def __init__(
        self,
        run: Callable[[_Task, list[_Helper]], None],
        has_ended: Callable[[_Task], None],
        idle: SimpleQueue[_Worker],
    ) -> None:
        self.tasks: SimpleQueue[_Task] = SimpleQueue()
        self._run = run
        self._has_ended = has_ended
        self._idle = idle
        self._telling = Lock()
        self._all.add(self)
        Thread(target=self._work, daemon=True).start()

    @classmethod
    def wait_for_telling(cls) -> None:
        """Wait for those that are telling. None tells anything after it."""
        for worker in list(cls._all):
            worker._telling.acquire(timeout=_TELLING_S)

    def _work(self) -> None:
        helpers: list[_Helper] = []
        while True:
            task = self.tasks.get()
            work = task.work
            failure: BaseException | None = None
            try:
                self._run(task, helpers)
            except BaseException as error:
                failure = error
            with self._telling:
                if failure is not None:
                    work.failed(failure)
                self._idle.put(self)
                self._has_ended(task)
                del task  # and its tensors, before the next one comes
                work.chunk_done()
                del work, failure


atexit.register(_Worker.wait_for_telling)


class _Helper:
    """A worker's thread for another sequence of its chunk."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[ChunkRun, int, Future[None]]] = SimpleQueue()
        Thread(target=self._work, daemon=True).start()

    def start(self, run: ChunkRun, sequence: int) -> Future[None]:
        future: Future[None] = Future()
        self._queue.put((run, sequence, future))
        return future

    def _work(self) -> None:
        while True:
            run, sequence, future = self._queue.get()
            try:
                run.run(sequence)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)
            del run, future

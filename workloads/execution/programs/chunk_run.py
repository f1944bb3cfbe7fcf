"""One chunk of a collective at one rank: its sequences, step by step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from threading import Condition, Lock
from typing import Any

import torch

from collectives.program import RECEIVES, Action, At, Sequence, Step
from collectives.schedule.lines import PLAIN, Lines
from collectives.schedule.schedule import Chunk
from collectives.waits import Waits
from workloads.execution.clock import now_ns, sleep_until_ns
from workloads.execution.payload.tensors import Tensors
from workloads.execution.programs.flags import in_lines, out_of_lines
from workloads.execution.programs.memory import ChunkMemory
from workloads.execution.programs.reductions import Combine
from workloads.execution.programs.turns import RankTurns


class ChunkRun:
    """Posts the steps of a rank as its program says (`collectives.program`).

    Gloo's point-to-point works block who waits for them and can be waited for once only, so each
    sequence has a thread, and a step is completed by whoever needs it first. `first_slot` is the
    tag of the program's message 0.
    """

    def __init__(
        self,
        chunk: Chunk,
        rank: int,
        waits: tuple[tuple[Waits, ...], ...],
        memory: ChunkMemory,
        group: Any,
        first_slot: int,
        turns: RankTurns | None,
        endpoint_delay_ns: int,
        combine: Combine,
        tensors: Tensors,
        passes: Callable[[int, bool], None] | None = None,
        lines: Lines = PLAIN,
    ) -> None:
        self._passes = passes
        self._lines = lines
        self._in_lines: dict[At, torch.Tensor] = {}
        """Messages under way, with their flags."""
        self._passed: set[int] = set()
        """Sequences with a copy."""
        self._chunk = chunk
        self._memory = memory
        self._group = group
        self._first_slot = first_slot
        self._turns = turns
        self._endpoint_delay_ns = endpoint_delay_ns
        self._combine = combine
        self._tensors = tensors
        self.sequences = chunk.program.participants[rank]
        self._waits = waits
        self._works: dict[At, Any] = {}
        self._arrived: dict[At, torch.Tensor] = {}
        self._complete: set[At] = set()
        # One for each step: a thread that waits for a late step must not keep others from an
        # earlier one of its sequence, as the late one's message may depend on what these post next.
        self._locks: defaultdict[At, Lock] = defaultdict(Lock)
        self._posted = Condition()
        self._open = Counter(step.phase for sequence in self.sequences for step in sequence.steps)
        self.phases: dict[int, tuple[int, int]] = {}
        """When each phase began and ended here."""

    def run(self, number: int) -> None:
        """Run a sequence to its end. Raises what torch raises when the fabric fails."""
        sequence = self.sequences[number]
        before: int | None = None
        for place, step in enumerate(sequence.steps):
            if step.phase != before:
                self._enter(number, place, before, step.phase)
                before = step.phase
            for at in self._waits[number][place].posted:
                self._complete_step(at)
            self._post(At(number, place), step)
        self._drain(number, len(sequence.steps))
        if before is not None:
            self._leave(sequence, before)

    def _enter(self, number: int, place: int, before: int | None, phase: int) -> None:
        if before is not None:
            if self._turns is not None:
                self._drain(number, place)
            self._leave(self.sequences[number], before)
        if self._turns is not None:
            self._turns.enter(self._chunk.index, phase)
        now = now_ns()
        with self._posted:
            start, end = self.phases.get(phase, (now, now))
            self.phases[phase] = min(start, now), end

    def _leave(self, sequence: Sequence, phase: int) -> None:
        """This sequence is through with a phase; the last one ends it."""
        now = now_ns()
        with self._posted:
            start, end = self.phases[phase]
            self.phases[phase] = start, max(end, now)
            self._open[phase] -= sum(step.phase == phase for step in sequence.steps)
            over = not self._open[phase]
        if over and self._turns is not None:
            self._turns.leave(self._chunk.index, phase)

    def _drain(self, number: int, end: int) -> None:
        for place in range(end):
            self._complete_step(At(number, place))

    def _post(self, at: At, step: Step) -> None:
        work = None
        if step.message is None:
            self._do_locally(at.sequence, step)
        else:
            view = self._memory.view(step.blocks)
            if step.action is Action.REDUCE:
                view = self._tensors.empty(view.numel(), view.dtype)
                self._arrived[at] = view
            # A message that is empty at one end is empty at the other.
            if view.numel():
                work = self._start(at, step, view)
        with self._posted:
            self._works[at] = work
            self._posted.notify_all()

    def _start(self, at: At, step: Step, view: torch.Tensor) -> Any:
        assert step.message is not None
        slot = self._first_slot + step.message
        if self._lines.flagged:
            data = view if step.action is Action.SEND else None
            view = self._in_lines[at] = in_lines(view, data, self._lines, self._tensors)
        if step.action in RECEIVES:
            return self._group.recv([view], step.peer, slot)
        if self._endpoint_delay_ns:
            sleep_until_ns(now_ns() + self._endpoint_delay_ns)
        return self._group.send([view], step.peer, slot)

    def _do_locally(self, sequence: int, step: Step) -> None:
        assert step.source is not None
        assert step.target is not None
        source, target = self._memory.view(step.source), self._memory.view(step.target)
        if step.action is Action.ADD:
            self._combine(target, source)
        else:
            if self._passes is not None:
                follows = sequence in self._passed
                self._passed.add(sequence)
                self._passes(source.numel() * source.element_size(), follows)
            self._tensors.copy(target, source)

    def _complete_step(self, at: At) -> None:
        """Wait until a step is complete; once posted, whoever comes first completes it."""
        if at in self._complete:
            return
        with self._posted:
            self._posted.wait_for(lambda: at in self._works)
            lock = self._locks[at]
        with lock:
            if at in self._complete:
                return
            for other in self._waits[at.sequence][at.place].applied:
                self._complete_step(other)
            if self._works[at] is not None:
                self._works[at].wait()
            self._take(at)
            self._complete.add(at)

    def _take(self, at: At) -> None:
        """Put what has come, if the step is a receive, to where it belongs."""
        step = self.sequences[at.sequence].steps[at.place]
        sent = self._in_lines.pop(at, None)
        if sent is not None:
            self._works[at] = None  # it holds the lines
        arrived = self._arrived.pop(at, None)
        if sent is not None and step.action in RECEIVES:
            target = self._memory.view(step.blocks) if arrived is None else arrived
            out_of_lines(sent, target, self._lines, self._tensors)
        if arrived is not None:
            self._combine(self._memory.view(step.blocks), arrived)

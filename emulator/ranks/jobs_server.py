"""Several jobs' processes: ranks of ours and programs of users, started together and watched job by
job. A job that fails is ended, and the others go on."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from emulator.ranks.aggregation.losable_nodes import LosableNodes
from emulator.ranks.aggregation.process import AggregationJob
from emulator.ranks.gate import Gate
from emulator.ranks.launcher import (
    common_start_ns,
    describe_status,
    receive_jobs,
    renew_before,
)
from emulator.ranks.packed_process import PackedJob
from emulator.ranks.program import (
    ProgramJob,
    Watch,
    descendants,
    end_descendants,
    inherit_orphans,
)
from emulator.ranks.rank_process import RankJob, send_report
from emulator.ranks.torch_import import prepare_torch

Process = RankJob | PackedJob | ProgramJob | AggregationJob


@dataclass(frozen=True, slots=True)
class JobProcesses:
    """A job of a run: its name, and the processes that it consists of."""

    name: str
    processes: tuple[Process, ...]

    @property
    def waiting(self) -> int:
        """How many will wait at the gate: a process each, or each of its threads. Switches begin
        when their ranks do."""
        ranks = [p for p in self.processes if not isinstance(p, AggregationJob)]
        return sum(len(p.members) if isinstance(p, PackedJob) else 1 for p in ranks)


def server_of_jobs(with_torch: bool) -> Callable[[socket.socket], None]:
    """The body of a `Launcher`'s server for `JobProcesses`, which ranks of ours need with torch."""

    def serve(orders: socket.socket) -> None:
        inherit_orphans()
        if with_torch:
            prepare_torch()
        jobs: tuple[JobProcesses, ...] | None = receive_jobs(orders)
        if jobs is not None:
            _Server(orders, jobs).run()

    return serve


class _Server:
    def __init__(self, orders: socket.socket, jobs: Sequence[JobProcesses]) -> None:
        self._orders = orders
        self._jobs = jobs
        self._gate = Gate()
        self._watch: Watch[Process] = Watch(orders)
        self._waiting: Counter[int] = Counter()
        self._failed: set[int] = set()
        self._nodes = [LosableNodes(job.processes) for job in jobs]
        self._opened = False
        self._rank_of: dict[int, int] = {}

    def run(self) -> None:
        start_ns = common_start_ns()
        job_of: dict[int, int] = {}
        pids: dict[int, int] = {}
        for number, job in enumerate(self._jobs):
            for process in job.processes:
                pid = self._start(process, start_ns)
                job_of[pid] = number
                self._rank_of[pid] = process.rank
                pids[len(pids)] = pid
        send_report(self._orders, {"pids": pids})
        renew_before(start_ns)
        self._watch.call_when_readable(self._gate.descriptor, self._some_are_ready)
        for pid, process, status in self._watch.ended():
            number = job_of.pop(pid)
            if status == 0 or number in self._failed:
                continue
            left = {of: each for each, of in self._rank_of.items() if job_of.get(each) == number}
            if not self._nodes[number].lost(process.rank, left, partial(send_report, self._orders)):
                self._fail(number, process, status, [p for p, n in job_of.items() if n == number])
        end_descendants()
        self._watch.drain()
        send_report(self._orders, {"done": True})

    def _start(self, process: Process, start_ns: int) -> int:
        if isinstance(process, ProgramJob):
            seat = process.seat
            assert seat is not None
            return self._watch.start(process, lambda: self._gate.wait(seat))
        pid = os.fork()
        if pid == 0:
            process.become(start_ns, self._orders, self._gate)
        self._watch.add(pid, process)
        return pid

    def _some_are_ready(self) -> None:
        self._waiting += self._gate.arrived()
        self._open_if_all_are_ready()

    def _open_if_all_are_ready(self) -> None:
        """The server does not wait for ranks that have failed."""
        alive = [n for n in range(len(self._jobs)) if n not in self._failed]
        if self._opened or any(self._waiting[n] < self._jobs[n].waiting for n in alive):
            return
        self._opened = True
        origin_ns = self._gate.open(self._waiting)
        send_report(self._orders, {"origin_ns": origin_ns})

    def _fail(self, number: int, process: Process, status: int, others: Sequence[int]) -> None:
        self._failed.add(number)
        at_ns = time.monotonic_ns()
        # What the others of the job have started as well; deeper ones first know nothing of it.
        for pid in [below for other in others for below in descendants(other)] + list(others):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        send_report(
            self._orders,
            {
                "job": self._jobs[number].name,
                "failed": process.rank,
                "status": describe_status(status),
                "at_ns": at_ns,
            },
        )
        self._open_if_all_are_ready()

"""The fork server: it starts the processes of a run's jobs together, and watches them job by job.

A run has jobs, usually one. A job that fails is ended, and the others go on. Each process waits for
a common time; those of several jobs (they have a `Seat`) wait for each other as well, when they are
connected, and each job begins at its start from then on.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from emulator.linux.random_numbers import renew_random_numbers
from emulator.ranks.aggregation.losable_nodes import LosableNodes
from emulator.ranks.aggregation.process import AggregationJob
from emulator.ranks.gate import Gate
from emulator.ranks.packed_process import PackedJob
from emulator.ranks.program import (
    Importing,
    ProgramJob,
    Watch,
    descendants,
    end_descendants,
    inherit_orphans,
    start_importing,
)
from emulator.ranks.rank_process import RankJob, send_report
from emulator.ranks.torch_import import inherited, prepare_torch
from workloads.execution.clock import round_time_ns, sleep_until_ns
from workloads.models.planned import programs_ahead
from workloads.observer.forks import STEP_NS

# All set out together, at a round time.
_START_MARGIN_NS = 50_000_000
_START_GRID_NS = 500_000_000
# Random numbers start anew before that, when all have been forked.
_RANDOM_MARGIN_NS = 10_000_000

Process = RankJob | PackedJob | ProgramJob | AggregationJob


@dataclass(frozen=True, slots=True)
class JobProcesses:
    """A job of a run, and the processes that it consists of. The job of a spec with one workload
    has no name."""

    name: str
    processes: tuple[Process, ...]

    @property
    def waiting(self) -> int:
        """How many will wait at the gate: a process each, or each of its threads. Switches begin
        when their ranks do."""
        ranks = [p for p in self.processes if not isinstance(p, AggregationJob)]
        return sum(len(p.members) if isinstance(p, PackedJob) else 1 for p in ranks)

    @property
    def members(self) -> Iterator[Process]:
        """All ranks, programs and switches, those that are threads of a process included."""
        for process in self.processes:
            yield from process.members if isinstance(process, PackedJob) else (process,)


def serve(orders: socket.socket, with_torch: bool, importing: Importing | None) -> None:
    """The body of the server. It reads jobs from the socket and sends reports, a line of JSON each;
    what runs is ended when the socket is closed. Ranks of ours need torch, which it imports once
    for all; those of a program have the Python that is `importing`, where one is known so early."""
    inherit_orphans()
    if with_torch:
        prepare_torch()
    imported = None if importing is None else start_importing(importing)
    send_report(orders, {"prepared": True})
    received = _receive(orders)
    if received is not None:
        jobs, seed = received
        _Server(orders, jobs, imported, seed).run()


def send_jobs(orders: socket.socket, jobs: Sequence[JobProcesses], seed: int | None = None) -> None:
    """Tell the server what to run, with random numbers of a `seed` besides the guest's. Raises
    BrokenPipeError where it has died."""
    order = pickle.dumps((tuple(jobs), seed))
    orders.sendall(struct.pack("!Q", len(order)) + order)


def _receive(orders: socket.socket) -> Any:
    """The jobs that are sent and their seed; None when none ever are."""
    header = orders.recv(8, socket.MSG_WAITALL)
    if len(header) < 8:
        return None
    (size,) = struct.unpack("!Q", header)
    return pickle.loads(orders.recv(size, socket.MSG_WAITALL))


class _Server:
    def __init__(
        self,
        orders: socket.socket,
        jobs: Sequence[JobProcesses],
        imported: int | None,
        seed: int | None,
    ) -> None:
        self._jobs, self._seed = jobs, seed
        self._tell: Callable[[dict[str, object]], None] = partial(send_report, orders)
        self._orders = orders
        self._gate = Gate()
        self._watch: Watch[Process] = Watch(orders, self._order)
        self._job_of: dict[int, int] = {}
        self._killed: set[int] = set()
        self._victims: dict[int, set[int]] = defaultdict(set)
        """By job: the ranks that faults have killed, and nobody has started again."""
        self._dead: dict[int, tuple[Process, int]] = {}
        """By job: a rank of ours that a fault has killed, and its status. The others fail without
        it, in their own words, or have been done with it."""
        self._lives: Counter[tuple[int, int]] = Counter()
        self._waiting: Counter[int] = Counter()
        self._failed: set[int] = set()
        self._nodes = [LosableNodes(job.processes) for job in jobs]
        self._opened = False
        self._process_of: dict[int, Process] = {}
        self._known: dict[tuple[int, frozenset[int]], tuple[str, Sequence[int]]] = {}
        self._imported = imported

    def run(self) -> None:
        if self._imported is None:
            self._imported = self._imports()
        with inherited():
            self._plan_programs()
        start_ns = round_time_ns(_START_MARGIN_NS, _START_GRID_NS)
        job_of = self._job_of = self._start_all(start_ns)
        self._tell({"pids": list(job_of)})
        # Random numbers from here on depend on nothing that was drawn before.
        sleep_until_ns(start_ns - _RANDOM_MARGIN_NS)
        renew_random_numbers(self._seed)
        if any(isinstance(p, ProgramJob) and p.seat is None for p in self._jobs[0].processes):
            sleep_until_ns(start_ns)  # they wait for nobody else
            self._tell({"origin_ns": start_ns})
        self._watch.call_when_readable(self._gate.descriptor, self._some_are_ready)
        for pid, process, status in self._watch.ended():
            number = job_of.pop(pid)
            left = {p.rank: at for at, p in self._process_of.items() if job_of.get(at) == number}
            if not isinstance(process, AggregationJob):
                self._end_nodes([self._process_of[pid] for pid in left.values()])
            if pid in self._killed:
                self._killed.discard(pid)
                if isinstance(process, RankJob) and status != 0:
                    self._dead[number] = process, status
                continue
            if status == 0 or number in self._failed:
                continue
            if not self._nodes[number].lost(process.rank, left, self._tell):
                self._fail(number, process, status, [p for p, n in job_of.items() if n == number])
        for number, (process, status) in self._dead.items():
            if number not in self._failed:
                self._fail(number, process, status, ())
        end_descendants()
        self._watch.drain()
        self._tell({"done": True})

    def _plan_programs(self) -> None:
        """Make the programs of collectives once for all ranks of ours, which inherit them."""
        for job in self._jobs:
            ranks = (member for member in job.members if isinstance(member, RankJob))
            for rank in islice(ranks, 1):
                programs_ahead(rank.plan.workload, rank.plan.collectives)

    def _imports(self) -> int | None:
        """Have a Python import what all programs do, and fork them; the socket for its orders."""
        programs = [p for job in self._jobs for p in job.processes if isinstance(p, ProgramJob)]
        together = len(self._jobs) == 1 and all(p.python is not None for p in programs)
        return start_importing(Importing.of(programs[0])) if programs and together else None

    def _start_all(self, start_ns: int) -> dict[int, int]:
        """The number of the job of each process, in order."""
        job_of: dict[int, int] = {}
        forked: list[tuple[int, Process]] = []
        programs = [p for job in self._jobs for p in job.processes if isinstance(p, ProgramJob)]
        # A program that asks for a shorter slice goes first in this, too; others in order of ranks.
        order = sorted(range(len(programs)), key=lambda index: programs[index].slice_ns)
        after_ns = iter([order.index(index) * STEP_NS for index in range(len(programs))])
        for number, job in enumerate(self._jobs):
            for process in job.processes:
                if isinstance(process, ProgramJob):
                    beginning = self._beginning(process, start_ns, next(after_ns))
                    pid = self._watch.start(process, beginning, self._imported)
                else:
                    pid = os.fork()
                    if pid == 0:
                        process.become(start_ns, self._orders, self._gate)
                    forked.append((pid, process))
                job_of[pid] = number
                self._process_of[pid] = process
        # When all have been forked: what watches one is not the others' to inherit.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        for pid, process in forked:
            self._watch.add(pid, process)
        return job_of

    def _end_nodes(self, left: Sequence[Process]) -> None:
        """Have the switches of a program end, where these are all that is left of its job."""
        nodes = [p for p in left if isinstance(p, AggregationJob) and p.serves_program]
        if len(nodes) == len(left) and not self._watch.due:  # nobody is to be started again
            for node in nodes:
                node.end()

    def _order(self, order: Mapping[str, Any]) -> None:
        """A fault of the spec: it kills programs, has ranks stand still, or limits their memory."""
        for number, job in enumerate(self._jobs):
            ranks = set(order["ranks"].get(job.name, ()))
            if ranks:
                self._order_job(number, ranks, order)

    def _order_job(self, number: int, ranks: Set[int], order: Mapping[str, Any]) -> None:
        what = order["order"]
        if what == "restart":
            for process in self._jobs[number].processes:
                if not isinstance(process, ProgramJob) or process.rank not in ranks:
                    continue
                if order["whole"] or not process.starts_ranks:
                    self._watch.due -= 1
                    if number not in self._failed:
                        self._start_again(number, process)
            return
        act: Callable[[Sequence[int]], None] = (
            partial(_limit_memory, more_bytes=order["more_bytes"])
            if what == "limit"
            else partial(_signal, number=_SIGNALS[what])
        )
        for pid, process in list(self._watch.running.items()):
            if self._job_of.get(pid) != number:
                continue
            if isinstance(process, RankJob) and process.rank in ranks:
                if what == "kill":
                    self._killed.add(pid)
                    self._victims[number].add(process.rank)
                act([pid])
            if not isinstance(process, ProgramJob):
                continue
            own = set(range(process.rank, process.rank + process.many))
            itself = own <= ranks and (order["whole"] or not process.starts_ranks)
            if itself and what == "kill":
                self._killed.add(pid)
                self._victims[number] |= own
                self._watch.due += order["again"]
            if itself:
                # The threads that it has ordered look at that when it can be found.
                act([pid])
            if itself or own & ranks:
                act(self._found(process, pid, frozenset(ranks), itself))

    def _found(
        self, process: ProgramJob, pid: int, ranks: frozenset[int], itself: bool
    ) -> Sequence[int]:
        """The processes of some ranks of a program, besides its own if it is meant `itself`.
        Nobody is looked for as long as no process begins: a straggler stops a thousand times a
        second."""
        began = Path("/proc/loadavg").read_text().rpartition(" ")[2]
        known = self._known.get((pid, ranks))
        if known is not None and known[0] == began:
            return known[1]
        found = descendants(pid)
        if not itself:  # it has started them, and sees to them
            found = [each for each in found if _rank_of(each) in ranks]
        forked = process.forked(ranks, itself)
        found = [*found, *forked, *descendants(*forked)]
        self._known[pid, ranks] = began, found
        return found

    def _start_again(self, number: int, process: ProgramJob) -> None:
        self._lives[number, process.rank] += 1
        again = replace(process, life=self._lives[number, process.rank])
        self._victims[number] -= set(range(process.rank, process.rank + process.many))
        pid = self._watch.start(again, lambda: None, self._imported)
        self._job_of[pid] = number
        self._process_of[pid] = again
        name = self._jobs[number].name
        self._tell({"restarted": True, "rank": process.rank, "pid": pid, "job": name})

    def _beginning(self, program: ProgramJob, start_ns: int, after_ns: int) -> Callable[[], None]:
        """The wait of a program's process before it is one, `after_ns` longer than the first's."""
        if program.seat is None:
            return lambda: sleep_until_ns(start_ns + after_ns)
        seat = replace(program.seat, start_ns=program.seat.start_ns + after_ns)
        return lambda: self._gate.wait(seat)

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
        self._tell({"origin_ns": origin_ns})

    def _fail(self, number: int, process: Process, status: int, others: Sequence[int]) -> None:
        self._failed.add(number)
        at_ns = time.monotonic_ns()
        # All that the others of the job have started ends as well.
        for pid in [*descendants(*others), *others]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._tell(
            {
                "job": self._jobs[number].name,
                "failed": process.rank,
                "status": _describe(status),
                "at_ns": at_ns,
                "killed": sorted(self._victims[number] - {process.rank}),
            }
        )
        if len(self._failed) < len(self._jobs):
            self._open_if_all_are_ready()


_SIGNALS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "thaw": signal.SIGCONT}


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _limit_memory(pids: Sequence[int], more_bytes: int) -> None:
    """Let processes take so much more of address space than they have (statm of proc(5))."""
    for pid in pids:
        with suppress(ProcessLookupError, FileNotFoundError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + more_bytes
            resource.prlimit(pid, resource.RLIMIT_AS, (most, most))


def _rank_of(pid: int) -> int | None:
    """The rank that a process's environment names; None: none."""
    with suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = variable.partition(b"=")
            if name in (b"RANK", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK") and value.isdigit():
                return int(value)
    return None


def _describe(status: int) -> str:
    """How a process ended, from what `os.waitpid` says."""
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exited with status {os.WEXITSTATUS(status)}"

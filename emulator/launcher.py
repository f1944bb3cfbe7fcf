"""Starts the ranks of a run and watches over them.

One process, the nursery, imports torch once; every rank is forked from it, so that 128 ranks share
one copy of torch's pages. The nursery is forked before the parent has opened netlink sockets or
started threads, none of which survive a fork well, and imports while the parent builds the fabric.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from emulator import namespaces
from emulator.full_directory import FULL
from emulator.interruption import leave_signals_to_parent
from emulator.parent_death import end_with_parent
from workloads.clock import round_time_ns, sleep_until_ns
from workloads.plan import RankPlan

_PR_SET_NAME = 15
_MCL_CURRENT, _MCL_ONFAULT = 1, 4
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_STDERR_TAIL_LINES = 12
# Ranks set out together, at a round time.
_START_MARGIN_NS = 50_000_000
_START_GRID_NS = 500_000_000

_libc = ctypes.CDLL(None, use_errno=True)


class RankFailed(RuntimeError):
    """A rank ended badly; the others have been killed."""

    def __init__(self, rank: int, status: str, stderr_tail: str) -> None:
        self.rank = rank
        self.status = status
        self.stderr_tail = stderr_tail
        said = (
            f"; its last words:\n{stderr_tail}" if stderr_tail else "; it wrote nothing to stderr"
        )
        super().__init__(f"rank {rank} {status}{said}")


@dataclass(frozen=True, slots=True)
class RankJob:
    """A rank and where it runs. `stderr` gets what it writes to stdout and stderr.

    `names` is what the rank sees as /etc/hosts: torch looks up the names of its peers, and without
    an answer there it waits seconds for a name server that the fabric does not have.
    """

    plan: RankPlan
    netns: Path
    names: Path
    stderr: Path


class Launcher:
    """A nursery of ranks. Use as a context manager: leaving it kills whatever still runs."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._orders: socket.socket | None = None
        self._stopped_by: Exception | None = None
        self.rank_pids: dict[int, int] = {}

    def __enter__(self) -> Launcher:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _become_nursery(theirs)
        theirs.close()
        self._pid, self._orders = pid, ours
        return self

    def __exit__(self, *exception: object) -> None:
        if self._orders is not None:
            self._orders.close()
        if self._pid is not None:
            for pid in (*self.rank_pids.values(), self._pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            os.waitpid(self._pid, 0)
            self._pid = None

    def stop(self, reason: Exception) -> None:
        """End all ranks, from any thread: `run` raises `reason`."""
        self._stopped_by = reason
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)

    def run(self, jobs: Sequence[RankJob], on_iteration: Callable[[int], None]) -> None:
        """Run all ranks to their end. `on_iteration(i)` is called when rank 0 begins iteration i.

        Raises RankFailed when one ends badly, OSError when there is no room for what one writes,
        and RuntimeError when the nursery itself dies.
        """
        assert self._orders is not None, "Launcher is used as a context manager"
        order = pickle.dumps(tuple(jobs))
        with suppress(BrokenPipeError):  # it has died: what follows says so
            self._orders.sendall(struct.pack("!Q", len(order)) + order)
        by_rank = {job.plan.rank: job for job in jobs}
        with suppress(ConnectionResetError), self._orders.makefile("r") as reports:
            for line in reports:
                report = json.loads(line)
                if "iteration" in report:
                    on_iteration(report["iteration"])
                elif "pids" in report:
                    self.rank_pids = {int(rank): pid for rank, pid in report["pids"].items()}
                elif "failed" in report:
                    rank = report["failed"]
                    raise RankFailed(rank, report["status"], _tail(by_rank[rank].stderr))
                elif "full" in report:
                    raise OSError(report["full"], os.strerror(report["full"]))
                elif "error" in report:
                    raise RuntimeError(f"the ranks could not be started:\n{report['error']}")
                elif "done" in report:
                    self.rank_pids = {}
                    return
        if self._stopped_by is not None:
            raise self._stopped_by
        raise RuntimeError("the process that starts the ranks died unexpectedly")


def _tail(path: Path) -> str:
    if not path.exists():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-_STDERR_TAIL_LINES:])


def _become_nursery(orders: socket.socket) -> None:
    """Body of the nursery process; never returns."""
    try:
        end_with_parent()
        _be_called("nursery")
        leave_signals_to_parent()
        try:
            _nurse(orders)
        except BaseException:
            _tell(orders, {"error": traceback.format_exc()})
    finally:
        os._exit(0)


def _nurse(orders: socket.socket) -> None:
    # Intra-op threads would contend for the cores that carry the fabric, and a pool does not
    # survive a fork.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    import gc

    import torch

    import workloads.rank  # noqa: F401  (so that ranks inherit it)

    torch.set_num_threads(1)
    _keep_freed_memory()
    gc.collect()
    gc.freeze()  # keeps the collector from writing to, and so copying, every inherited page
    # What ranks share of Python and torch stays in memory, else a guest with too little of it drops
    # and reads that for ever instead of saying so. Best effort, as a host may forbid it.
    _libc.mlockall(_MCL_CURRENT | _MCL_ONFAULT)
    header = orders.recv(8, socket.MSG_WAITALL)
    if len(header) < 8:
        return
    (size,) = struct.unpack("!Q", header)
    jobs: tuple[RankJob, ...] = pickle.loads(orders.recv(size, socket.MSG_WAITALL))
    start_ns = round_time_ns(_START_MARGIN_NS, _START_GRID_NS)
    rank_of: dict[int, int] = {}
    for job in jobs:
        pid = os.fork()
        if pid == 0:
            _become_rank(job, start_ns, orders)
        rank_of[pid] = job.plan.rank
    _tell(orders, {"pids": {rank: pid for pid, rank in rank_of.items()}})
    while rank_of:
        pid, status = os.wait()
        rank = rank_of.pop(pid)
        if status != 0:
            for other in rank_of:
                os.kill(other, signal.SIGKILL)
            for other in rank_of:
                os.waitpid(other, 0)
            _tell(orders, {"failed": rank, "status": _describe(status)})
            return
    _tell(orders, {"done": True})


def _keep_freed_memory() -> None:
    """Have malloc use large blocks again instead of giving them back: in the virtual kernel the
    first touch of a page costs more than anything that is done with it (mallopt(3))."""
    for parameter, value in ((_M_MMAP_THRESHOLD, 32 << 20), (_M_TRIM_THRESHOLD, 1 << 30)):
        _libc.mallopt(parameter, value)


def _become_rank(job: RankJob, start_ns: int, reports: socket.socket) -> None:
    """Body of a rank's process; never returns."""
    status = 1
    try:
        end_with_parent()
        _be_called(f"rank {job.plan.rank}")
        log = os.open(job.stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        # What the parent made of these two (a test runner captures them) is not the rank's.
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        namespaces.enter(job.netns)
        namespaces.cover_file(Path("/etc/hosts"), job.names)
        from workloads.rank import run_rank

        sleep_until_ns(start_ns)
        run_rank(job.plan, lambda iteration: _tell(reports, {"iteration": iteration}))
        status = 0
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in FULL:
            _tell(reports, {"full": error.errno})  # there is no room for last words either
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _describe(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exited with status {os.WEXITSTATUS(status)}"


def _tell(reports: socket.socket, report: dict[str, object]) -> None:
    reports.sendall((json.dumps(report) + "\n").encode())


def _be_called(name: str) -> None:
    """What kernels and `top` call this process, of which there are many alike."""
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)

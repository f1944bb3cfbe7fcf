"""Starts the ranks of a run and watches over them.

A fork server imports torch once and forks every rank, so that 128 ranks share one copy of torch's
pages. It starts before the parent has opened netlink sockets or started threads, which do not
survive a fork well. It imports while the parent builds the fabric.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import struct
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from emulator.linux.random_numbers import renew_random_numbers
from emulator.linux.signals import end_with_parent, ignore_ending_signals
from emulator.ranks.aggregation.losable_nodes import LosableNodes, switches_of
from emulator.ranks.failures.last_words import advice, last_words
from emulator.ranks.packed_process import PackedJob
from emulator.ranks.rank_process import RankJob, send_report, set_name
from emulator.ranks.torch_import import prepare_torch
from workloads.execution.clock import round_time_ns, sleep_until_ns

# Ranks set out together, at a round time.
_START_MARGIN_NS = 50_000_000
_START_GRID_NS = 500_000_000
# Random numbers start anew before that, when all have been forked.
_RANDOM_MARGIN_NS = 10_000_000
# What a server gets to end what runs, before it is killed itself.
_PATIENCE_S = 10


class RankFailed(RuntimeError):
    """A rank ended badly; the others have been killed. `log` is named where it has more."""

    def __init__(
        self,
        rank: int,
        status: str,
        stderr_tail: str,
        who: str | None = None,
        log: Path | None = None,
        advice: str = "",
    ) -> None:
        self.rank = rank
        self.status = status
        self.stderr_tail = stderr_tail
        of_log = "" if log is None else f" (all of them: {log})"
        said = (
            f"; its last words{of_log}:\n{stderr_tail}"
            if stderr_tail
            else "; it wrote nothing to stderr"
        )
        super().__init__(f"{who or f'rank {rank}'} {status}{said}{advice}")


class Job(Protocol):
    """The properties of a job that a launcher has to know: its rank, or the first of several, who
    that is in words, and where its stderr goes."""

    @property
    def rank(self) -> int: ...

    @property
    def who(self) -> str: ...

    @property
    def stderr(self) -> Path: ...


class Launcher:
    """The fork server and its ranks. A context manager: leaving it kills whatever still runs.

    `serve` is the body of the server: it reads jobs from the socket (`receive_jobs`), starts them
    and sends reports, and ends what runs when the socket is closed. `on_output` gets (stream, line)
    of what is to be seen at once.
    """

    def __init__(
        self,
        serve: Callable[[socket.socket], None] | None = None,
        on_output: Callable[[str, str], None] | None = None,
    ) -> None:
        self._serve = serve or _serve
        self._ends_by_itself = serve is not None
        self._on_output = on_output
        self._pid: int | None = None
        self._orders: socket.socket | None = None
        self._stopped_by: Exception | None = None
        self.rank_pids: dict[int, int] = {}
        self._switches: dict[int, str] = {}
        self.lost_nodes: list[dict[str, object]] = []
        """The aggregation nodes without which ranks went on: `switch`, and `at_ns` of the monotonic
        clock."""
        self.iteration_began_ns: int | None = None
        """When ranks that hurry began the iteration that was told of last; monotonic clock."""

    def __enter__(self) -> Launcher:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _fork_server_main(theirs, self._serve)
        theirs.close()
        self._pid, self._orders = pid, ours
        return self

    def __exit__(self, *exception: object) -> None:
        if self._orders is not None:
            self._hang_up(self._orders)
            self._orders.close()
        if self._pid is not None:
            for pid in (*self.rank_pids.values(), self._pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            os.waitpid(self._pid, 0)
            self._pid = None

    def _hang_up(self, orders: socket.socket) -> None:
        """Let a server that can do so end what runs: it knows what its programs have started."""
        if self._pid is None or not self._ends_by_itself:
            return
        with suppress(OSError):
            orders.shutdown(socket.SHUT_RDWR)
        pidfd = os.pidfd_open(self._pid)
        try:
            select.select([pidfd], [], [], _PATIENCE_S)
        finally:
            os.close(pidfd)

    def wait_until_prepared(self) -> None:
        """Wait until the server of ranks has imported what they need. Raises RuntimeError when it
        cannot."""
        assert self._orders is not None, "Launcher is used as a context manager"
        said = b""
        while not said.endswith(b"\n"):
            part = self._orders.recv(1 << 16)
            if not part:
                raise RuntimeError("the process that starts the ranks died unexpectedly")
            said += part
        report = json.loads(said)
        if "error" in report:
            raise RuntimeError(f"the ranks could not be started:\n{report['error']}")

    def stop(self, reason: Exception) -> None:
        """End all ranks, from any thread: `run` raises `reason`."""
        self._stopped_by = reason
        if self._ends_by_itself and self._orders is not None:
            with suppress(OSError):
                self._orders.shutdown(socket.SHUT_RDWR)
        elif self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)

    def note_lost(self, report: Mapping[str, object]) -> None:
        """A server has told that a node is lost."""
        self.lost_nodes.append({"switch": report["lost"], "at_ns": report["at_ns"]})

    def kill_node(self, switch: str) -> None:
        """Kill the aggregation nodes of a switch, from any thread; there may be none."""
        for number, pid in self.rank_pids.items():
            if self._switches.get(number) == switch:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def run(self, jobs: Sequence[Job], on_iteration: Callable[[int], None]) -> None:
        """Run all ranks to their end. `on_iteration(i)` is called when rank 0 begins iteration i.

        Raises RankFailed when one ends badly, OSError when there is no room for what one writes,
        and RuntimeError when the fork server itself dies.
        """
        assert self._orders is not None, "Launcher is used as a context manager"
        order = pickle.dumps(tuple(jobs))
        with suppress(BrokenPipeError):  # it has died: what follows says so
            self._orders.sendall(struct.pack("!Q", len(order)) + order)
        by_rank = {job.rank: job for job in jobs}
        self._switches = switches_of({job.rank: job for job in jobs})
        addresses = {getattr(job, "address", ""): job.who for job in jobs}
        threads = {
            member.rank: (job.rank, member)
            for job in jobs
            if isinstance(job, PackedJob)
            for member in job.members
        }
        raised: dict[int, RankFailed] = {}  # by process: its first thread that raised
        with suppress(ConnectionResetError), self._orders.makefile("r") as reports:
            for line in reports:
                report = json.loads(line)
                if "iteration" in report:
                    self.iteration_began_ns = report.get("began_ns")
                    on_iteration(report["iteration"])
                elif "lost" in report:
                    self.note_lost(report)
                elif "pids" in report:
                    self.rank_pids = {int(rank): pid for rank, pid in report["pids"].items()}
                elif "failed" in report:
                    rank = report["failed"]
                    # Who raised elsewhere did so when this process had ended.
                    if rank in raised:
                        raise raised[rank]
                    job = by_rank[rank]
                    log = None if isinstance(job, RankJob | PackedJob) else job.stderr
                    words = last_words(job.stderr)
                    helps = advice(words, addresses)
                    raise RankFailed(rank, report["status"], words, job.who, log, helps)
                elif "raised" in report:
                    process, member = threads[report["raised"]]
                    failure = RankFailed(member.rank, report["status"], last_words(member.stderr))
                    raised.setdefault(process, failure)
                elif "line" in report:
                    if self._on_output is not None:
                        self._on_output(report["stream"], report["line"])
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


def _fork_server_main(orders: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Body of the fork server's process; never returns."""
    try:
        end_with_parent()
        set_name("fork server")
        ignore_ending_signals()
        try:
            serve(orders)
        except BaseException:
            send_report(orders, {"error": traceback.format_exc()})
    finally:
        os._exit(0)


def _serve(orders: socket.socket) -> None:
    prepare_torch()
    send_report(orders, {"prepared": True})
    jobs: tuple[RankJob | PackedJob, ...] | None = receive_jobs(orders)
    if jobs is None:
        return
    start_ns = common_start_ns()
    rank_of: dict[int, int] = {}
    for job in jobs:
        pid = os.fork()
        if pid == 0:
            job.become(start_ns, orders)
        rank_of[pid] = job.rank
    renew_before(start_ns)
    send_report(orders, {"pids": {rank: pid for pid, rank in rank_of.items()}})
    nodes = LosableNodes(jobs)
    while rank_of:
        pid, status = os.wait()
        rank = rank_of.pop(pid)
        left = {number: pid for pid, number in rank_of.items()}
        if status != 0 and not nodes.lost(rank, left, partial(send_report, orders)):
            for other in rank_of:
                os.kill(other, signal.SIGKILL)
            for other in rank_of:
                os.waitpid(other, 0)
            send_report(orders, {"failed": rank, "status": describe_status(status)})
            return
    send_report(orders, {"done": True})


def receive_jobs(orders: socket.socket) -> Any:
    """The jobs that `Launcher.run` was called with; None when it never is."""
    header = orders.recv(8, socket.MSG_WAITALL)
    if len(header) < 8:
        return None
    (size,) = struct.unpack("!Q", header)
    return pickle.loads(orders.recv(size, socket.MSG_WAITALL))


def common_start_ns() -> int:
    """The round time at which all ranks set out together."""
    return round_time_ns(_START_MARGIN_NS, _START_GRID_NS)


def renew_before(start_ns: int) -> None:
    """In a server, when it has forked all: sleep until shortly before they set out, and have what
    they draw depend on nothing that was drawn before."""
    sleep_until_ns(start_ns - _RANDOM_MARGIN_NS)
    renew_random_numbers()


def describe_status(status: int) -> str:
    """How a process ended, from what `os.wait` says."""
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exited with status {os.WEXITSTATUS(status)}"

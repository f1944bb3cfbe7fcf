"""Starts the processes of a run and watches over them.

A fork server (`server`) imports torch once and forks every rank, so that 128 ranks share one copy
of torch's pages. It starts before the parent has opened netlink sockets or started threads, which
do not survive a fork well. It imports while the parent builds the fabric.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from collectives.waiting_ranks import named_ranks
from emulator.linux.signals import end_with_parent, ignore_ending_signals
from emulator.ranks.aggregation.process import AggregationJob
from emulator.ranks.failures.calls import read_calls
from emulator.ranks.failures.different_collectives import different_collectives
from emulator.ranks.failures.hang import Doing, find_hang
from emulator.ranks.failures.last_words import advice, last_words
from emulator.ranks.packed_process import PackedJob
from emulator.ranks.program import Importing
from emulator.ranks.rank_process import RankJob, send_report, set_name
from emulator.ranks.server import JobProcesses, Process, send_jobs, serve

# A server gets so long to end what runs, before it is killed itself.
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


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job that ended badly, at `at_ns` of the monotonic clock: by which rank, and its words."""

    at_ns: int
    failure: RankFailed

    def as_dict(self) -> dict[str, object]:
        """Plain data, for environment.json."""
        return {"at_ns": self.at_ns, "rank": self.failure.rank, "said": str(self.failure)}


@dataclass(frozen=True, slots=True)
class Running:
    """A process that runs, and the name of its job."""

    job: str
    process: Process


class Launcher:
    """The fork server and its processes. A context manager: leaving it kills whatever still runs.

    Ranks of ours need a server `with_torch`; with `importing` it has a Python import torch for a
    program's. A server that is to `preload` libraries is a Python of its own.
    """

    def __init__(
        self,
        with_torch: bool = True,
        importing: Importing | None = None,
        preload: Sequence[Path] = (),
    ) -> None:
        self._with_torch, self._importing, self._preload = with_torch, importing, preload
        self.on_output: Callable[[str, str], None] | None = None
        """Gets (stream, line) of what is to be seen at once, of several jobs with the name of the
        job before it."""
        self._pid: int | None = None
        self._orders: socket.socket | None = None
        self._stopped_by: Exception | None = None
        self.running: dict[int, Running] = {}
        """By its number, each process that was started, until all have ended."""
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
            if self._preload:
                _become_preloaded(theirs, self._with_torch, self._preload)
            _fork_server_main(theirs, self._with_torch, self._importing)
        theirs.close()
        self._pid, self._orders = pid, ours
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pid is not None and self._orders is not None:
            self._hang_up(self._pid, self._orders)
            for pid in (*self.running, self._pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None

    def _hang_up(self, server: int, orders: socket.socket) -> None:
        """Let the server end what runs: it knows what its programs have started."""
        with suppress(OSError):
            orders.shutdown(socket.SHUT_RDWR)
        pidfd = os.pidfd_open(server)
        try:
            select.select([pidfd], [], [], _PATIENCE_S)
        finally:
            os.close(pidfd)
        orders.close()

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
        """End all processes, from any thread: `run` raises `reason`."""
        self._stopped_by = reason
        if self._orders is not None:
            with suppress(OSError):
                self._orders.shutdown(socket.SHUT_RDWR)

    def order(
        self,
        what: str,
        ranks: Mapping[str, Sequence[int]],
        *,
        whole: bool,
        again: bool,
        more_bytes: int = 0,
    ) -> None:
        """Have something done to the programs of ranks, by job, from any thread: `kill`, `restart`,
        `freeze`, `thaw`, or `limit` to `more_bytes` of address space than they have; with `whole`
        also to what has started these ranks. A killed rank that is to be started `again` is waited
        for, and a killed rank has not failed."""
        line = json.dumps(
            {
                "order": what,
                "ranks": {job: list(those) for job, those in ranks.items()},
                "whole": whole,
                "again": again,
                "more_bytes": more_bytes,
            }
        )
        if self._orders is not None:
            with suppress(OSError):  # all have ended
                self._orders.sendall(line.encode() + b"\n")

    def kill_node(self, switch: str) -> None:
        """Kill the aggregation nodes of a switch, from any thread; there may be none."""
        for pid, running in list(self.running.items()):
            node = running.process
            if isinstance(node, AggregationJob) and node.plan.node.name == switch:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def run(
        self,
        jobs: Sequence[JobProcesses],
        on_iteration: Callable[[str, int], None],
        on_origin: Callable[[int], None] = lambda origin_ns: None,
        seed: int | None = None,
    ) -> dict[str, FailedJob]:
        """Run all jobs to their ends, with random numbers of a `seed` besides the guest's; returns
        those that failed, by name.

        `on_iteration` is called with the name of the job and the number when its rank 0 begins an
        iteration, and `on_origin` with the time from which the starts of several jobs are counted,
        or at which programs of users are started.

        Raises RankFailed when all jobs have failed, OSError when there is no room for what one
        writes, and RuntimeError when the fork server itself dies.
        """
        assert self._orders is not None, "Launcher is used as a context manager"
        with suppress(BrokenPipeError):  # it has died: what follows says so
            send_jobs(self._orders, jobs, seed)
        failures = _Failures(jobs)
        with suppress(ConnectionResetError), self._orders.makefile("r") as reports:
            for line in reports:
                report = json.loads(line)
                job = report.get("job", "")
                if "iteration" in report:
                    self.iteration_began_ns = report.get("began_ns")
                    on_iteration(job, report["iteration"])
                elif "origin_ns" in report:
                    on_origin(report["origin_ns"])
                elif "lost" in report:
                    self.lost_nodes.append({"switch": report["lost"], "at_ns": report["at_ns"]})
                elif "pids" in report:
                    every = [Running(job.name, p) for job in jobs for p in job.processes]
                    self.running = dict(zip(report["pids"], every, strict=True))
                elif "restarted" in report:
                    self.running[report["pid"]] = Running(job, failures.of(job, report["rank"]))
                elif "failed" in report:
                    failures.add(job, report)
                elif "raised" in report:
                    failures.add_raised(job, report)
                elif "line" in report:
                    if self.on_output is not None:
                        whose = f"{job}: " if job else ""
                        self.on_output(report["stream"], whose + report["line"])
                elif "full" in report:
                    raise OSError(report["full"], os.strerror(report["full"]))
                elif "error" in report:
                    raise RuntimeError(f"the ranks could not be started:\n{report['error']}")
                elif "done" in report:
                    self.running = {}
                    return failures.unless_all()
        if self._stopped_by is not None:
            raise self._stopped_by
        raise RuntimeError("the process that starts the ranks died unexpectedly")


class _Failures:
    """The jobs of a run that have failed, each by the process that was first."""

    def __init__(self, jobs: Sequence[JobProcesses]) -> None:
        self._jobs = jobs
        self._found: dict[str, FailedJob] = {}
        self._raised: dict[tuple[str, int], RankFailed] = {}
        """By job and process: its first thread that raised."""

    def add(self, job: str, report: Mapping[str, object]) -> None:
        """A process has ended badly."""
        (process,) = (p for p in self._of(job).processes if p.rank == report["failed"])
        # A rank that raised elsewhere did so when this process had ended.
        failure = self._raised.get((job, process.rank)) or self._failure(job, process, report)
        at_ns = report["at_ns"]
        assert isinstance(at_ns, int)
        self._found[job] = FailedJob(at_ns, failure)

    def add_raised(self, job: str, report: Mapping[str, object]) -> None:
        """A rank that is a thread of a process has raised."""
        for process in self._of(job).processes:
            for member in process.members if isinstance(process, PackedJob) else ():
                if member.rank == report["raised"]:
                    failure = self._failure(job, member, report)
                    self._raised.setdefault((job, process.rank), failure)

    def unless_all(self) -> dict[str, FailedJob]:
        """The jobs that have failed. Raises RankFailed, of the first one, when all have."""
        if self._jobs and len(self._found) == len(self._jobs):
            raise min(self._found.values(), key=lambda each: each.at_ns).failure
        return self._found

    def of(self, job: str, rank: int) -> Process:
        """The process of a job that has this rank, or begins with it."""
        return next(process for process in self._of(job).processes if process.rank == rank)

    def _of(self, name: str) -> JobProcesses:
        return next(job for job in self._jobs if job.name == name)

    def _failure(self, job: str, process: Process, report: Mapping[str, object]) -> RankFailed:
        whose = f"job {job}: " if job else ""
        words = last_words(process.stderr)
        log = None if isinstance(process, RankJob | PackedJob) else process.stderr
        hosts = {getattr(each, "address", ""): whose + each.who for each in self._of(job).members}
        status = str(report["status"])
        logs = process.stderr.parent
        named = report.get("killed")
        killed = named if isinstance(named, list) else []
        helps = advice(words, hosts) + _who_was_killed(killed)
        helps += _who_waited(words, logs, killed) + different_collectives(logs)
        return RankFailed(process.rank, status, words, whose + process.who, log, helps)


_LEFT_ALONE = re.compile(r"[Tt]ime(d )?-?\s?[Oo]ut|closed by peer|reset by peer|Broken pipe")
"""The last words of a process that others have not answered, or have left."""


def _who_was_killed(killed: Sequence[int]) -> str:
    """A line on the ranks that faults had killed before a process failed."""
    if not killed:
        return ""
    verb = "was" if len(killed) == 1 else "were"
    return f"\n{named_ranks(killed)} {verb} killed before by a fault of the spec"


def _who_waited(words: str, logs: Path, killed: Sequence[int]) -> str:
    """Lines on who waited for whom, and who did not come, for a process that others left alone."""
    if _LEFT_ALONE.search(words) is None:
        return ""
    calls = read_calls(logs)
    doing = dict.fromkeys(killed, Doing(gone=True))
    hang = find_hang(calls, calls.everybody, doing, time.monotonic_ns())
    return "".join(f"\n{line}" for line in (*hang.who_waits(), *hang.who_did_not_come()))


def _become_preloaded(orders: socket.socket, with_torch: bool, preload: Sequence[Path]) -> None:
    """Become a Python that has the libraries, and goes on in `serve_preloaded`; never returns."""
    orders.set_inheritable(True)
    program = f"from {__name__} import serve_preloaded; serve_preloaded()"
    arguments = [sys.executable, "-c", program, str(orders.fileno()), str(int(with_torch))]
    libraries = [*map(str, preload), *filter(None, [os.environ.get("LD_PRELOAD")])]
    environment = {
        **os.environ,
        "LD_PRELOAD": ":".join(libraries),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    try:
        os.execve(sys.executable, arguments, environment)
    finally:
        os._exit(1)


def serve_preloaded() -> None:
    """The body of a server that `_become_preloaded` has made; never returns."""
    descriptor, with_torch = map(int, sys.argv[1:])
    _fork_server_main(socket.socket(fileno=descriptor), bool(with_torch), None)


def _fork_server_main(orders: socket.socket, with_torch: bool, importing: Importing | None) -> None:
    """Body of the fork server's process; never returns."""
    try:
        end_with_parent()
        set_name("fork server")
        ignore_ending_signals()
        try:
            serve(orders, with_torch, importing)
        except BaseException:
            send_report(orders, {"error": traceback.format_exc()})
    finally:
        os._exit(0)

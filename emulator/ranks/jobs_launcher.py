"""Starts the processes of several jobs, and tells which of them have failed."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from emulator.ranks.aggregation.losable_nodes import switches_of
from emulator.ranks.failures.last_words import advice, last_words
from emulator.ranks.jobs_server import JobProcesses, Process, server_of_jobs
from emulator.ranks.launcher import Launcher, RankFailed
from emulator.ranks.packed_process import PackedJob
from emulator.ranks.program import ProgramJob


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job that ended badly, at `at_ns` of the monotonic clock: by which rank, and its words."""

    at_ns: int
    failure: RankFailed

    def as_dict(self) -> dict[str, object]:
        """Plain data, for environment.json."""
        return {"at_ns": self.at_ns, "rank": self.failure.rank, "said": str(self.failure)}


class JobsLauncher(Launcher):
    """A launcher of several jobs. `on_output` gets lines with the name of their job before them."""

    def __init__(self, with_torch: bool, on_output: Callable[[str, str], None]) -> None:
        super().__init__(server_of_jobs(with_torch), on_output)

    def run_jobs(
        self,
        jobs: Sequence[JobProcesses],
        on_origin: Callable[[int], None],
        on_iteration: Callable[[str, int], None],
    ) -> dict[str, FailedJob]:
        """Run all jobs to their ends; returns those that failed.

        `on_origin` is called with the time from which starts are counted, and `on_iteration` with
        job and number when an iteration begins. Raises RankFailed when all jobs have failed,
        OSError when there is no room for what one writes, RuntimeError when the server itself dies.
        """
        assert self._orders is not None, "a launcher is used as a context manager"
        order = pickle.dumps(tuple(jobs))
        with suppress(BrokenPipeError):  # it has died: what follows says so
            self._orders.sendall(struct.pack("!Q", len(order)) + order)
        self._switches = switches_of(dict(enumerate(p for job in jobs for p in job.processes)))
        by_rank = {(job.name, p.rank): p for job in jobs for p in job.processes}
        failed: dict[str, FailedJob] = {}
        raised: dict[str, RankFailed] = {}  # by job: its first thread that raised
        with suppress(ConnectionResetError), self._orders.makefile("r") as reports:
            for line in reports:
                report = json.loads(line)
                job = report.get("job", "")
                if "origin_ns" in report:
                    on_origin(report["origin_ns"])
                elif "iteration" in report:
                    on_iteration(job, report["iteration"])
                elif "lost" in report:
                    self.note_lost(report)
                elif "pids" in report:
                    self.rank_pids = {int(number): pid for number, pid in report["pids"].items()}
                elif "failed" in report:
                    failure = raised.get(job) or _failure(
                        job, by_rank[job, report["failed"]], report["status"]
                    )
                    failed[job] = FailedJob(report["at_ns"], failure)
                elif "raised" in report:
                    member = _member(jobs, job, report["raised"])
                    raised.setdefault(job, _failure(job, member, report["status"]))
                elif "line" in report:
                    if self._on_output is not None:
                        self._on_output(report["stream"], f"{job}: {report['line']}")
                elif "full" in report:
                    raise OSError(report["full"], os.strerror(report["full"]))
                elif "error" in report:
                    raise RuntimeError(f"the jobs could not be started:\n{report['error']}")
                elif "done" in report:
                    self.rank_pids = {}
                    if len(failed) == len(jobs):
                        raise min(failed.values(), key=lambda each: each.at_ns).failure
                    return failed
        if self._stopped_by is not None:
            raise self._stopped_by
        raise RuntimeError("the process that starts the jobs died unexpectedly")


def _member(jobs: Sequence[JobProcesses], name: str, rank: int) -> Process:
    """A rank of a job, which may be a thread of a process."""
    for job in jobs:
        if job.name == name:
            for process in job.processes:
                members = process.members if isinstance(process, PackedJob) else (process,)
                for member in members:
                    if member.rank == rank:
                        return member
    raise AssertionError(f"no rank {rank} in job {name}")


def _failure(job: str, process: Process, status: str) -> RankFailed:
    log = process.stderr if isinstance(process, ProgramJob) else None
    who = f"job {job}: {process.who}"
    words = last_words(process.stderr)
    address = getattr(process, "address", "")
    return RankFailed(process.rank, status, words, who, log, advice(words, {address: who}))

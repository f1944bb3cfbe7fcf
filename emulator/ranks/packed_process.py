"""Ranks that are threads of one process.

A thread enters its host's network namespace and makes process groups of its own there, so that
Gloo's sockets and threads are that host's. Between two ranks of one process the kernel need not
change the address space, which is what a switch costs most.
"""

from __future__ import annotations

import resource
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import NoReturn

from emulator.linux import namespaces
from emulator.linux.signals import end_with_parent
from emulator.ranks.gate import Gate
from emulator.ranks.rank_process import (
    RankJob,
    end_process,
    send_report,
    set_name,
    tell_full,
    use_one_heap,
    write_to,
)
from emulator.ranks.torch_import import renew_thread_pool

# A thread that waits for Python's lock wakes up this often to ask for it. In virtual time who has
# it gives it back by itself before any time passes.
_SWITCH_INTERVAL_S = 1000.0


@dataclass(frozen=True, slots=True)
class PackedJob:
    """Neighbouring ranks as threads of one process. Output of no rank in particular, such as C++'s
    words before an abort, goes to the first one's `stderr`."""

    members: tuple[RankJob, ...]

    @property
    def rank(self) -> int:
        return self.members[0].rank

    @property
    def who(self) -> str:
        return f"the process of ranks {self._range(' to ')}"

    @property
    def stderr(self) -> Path:
        return self.members[0].stderr

    def become(self, start_ns: int, reports: socket.socket, gate: Gate) -> NoReturn:
        """In a process just forked: be these ranks, from a time of the clock on, to their end."""
        status = 1
        try:
            end_with_parent()
            set_name(f"ranks {self._range('-')}")
            write_to(self.stderr)
            _allow_many_files()
            # For all of them: the fabric's names are the same everywhere.
            namespaces.cover_file(Path("/etc/hosts"), self.members[0].names)
            use_one_heap()
            renew_thread_pool()
            sys.setswitchinterval(_SWITCH_INTERVAL_S)
            self._run(start_ns, reports, gate)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            end_process(status)

    def _range(self, to: str) -> str:
        return f"{self.rank}{to}{self.members[-1].rank}"

    def _run(self, start_ns: int, reports: socket.socket, gate: Gate) -> None:
        ended: list[int] = []

        def run(job: RankJob) -> None:
            _run_in_thread(job, start_ns, reports, gate)
            ended.append(job.rank)

        threads = [Thread(target=run, args=(job,)) for job in self.members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(ended) < len(threads):
            raise RuntimeError("a thread ended without a word")


def packed(jobs: Sequence[RankJob], per_process: int) -> list[PackedJob]:
    """Jobs in processes of up to `per_process` threads."""
    firsts = range(0, len(jobs), per_process)
    return [PackedJob(tuple(jobs[first : first + per_process])) for first in firsts]


def _run_in_thread(job: RankJob, start_ns: int, reports: socket.socket, gate: Gate) -> None:
    """Body of a rank's thread. When it fails the process ends: others of it would wait for ever."""
    try:
        set_name(job.who)
        job.enter_host()
        job.run(start_ns, reports, gate, packed=True)
    except BaseException as error:
        tell_full(error, reports)
        with suppress(OSError), job.stderr.open("a") as log:
            traceback.print_exc(file=log)
        # Before its connections close, at which others fail.
        status = f"raised {type(error).__name__}"
        send_report(reports, {"raised": job.rank, "status": status, **job.of_job})
        end_process(1)


def _allow_many_files() -> None:
    """Room for the connections of all ranks: all that the kernel allows, or this user."""
    most = int(Path("/proc/sys/fs/nr_open").read_text())
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except ValueError:  # outside of a guest, root may not be allowed to raise it
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))

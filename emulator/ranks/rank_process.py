"""A rank that is a process of its own."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from emulator.linux import namespaces
from emulator.linux.real_time import RANK, use_real_time_priority
from emulator.linux.signals import end_with_parent
from emulator.ranks.failures.full_directory import FULL
from emulator.ranks.gate import Gate, Seat
from emulator.ranks.torch_import import renew_thread_pool
from workloads.execution.clock import sleep_until_ns
from workloads.execution.rank_plan import RankPlan
from workloads.execution.traffic_class import NO_CLASS, TrafficClass
from workloads.observer import POSTS

_PR_SET_NAME = 15
_M_ARENA_MAX = -8

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class RankJob:
    """A rank and where it runs. `stderr` gets what it writes to stdout and stderr.

    `names` is the rank's /etc/hosts: torch looks up the names of its peers, and without an answer
    there it waits seconds for a name server that the fabric does not have. With
    `real_time_priority` it goes before all processes of ordinary priority: what others do on the
    machine then delays it little.
    """

    plan: RankPlan
    netns: Path
    names: Path
    stderr: Path
    real_time_priority: bool = False
    traffic: TrafficClass = NO_CLASS
    seat: Seat | None = None
    """The seat of a rank of one of several jobs: its place at their gate."""

    @property
    def rank(self) -> int:
        return self.plan.rank

    @property
    def who(self) -> str:
        return f"rank {self.rank}"

    @property
    def of_job(self) -> dict[str, object]:
        """The other fields of its reports."""
        return {} if self.seat is None else {"job": self.seat.job}

    def _begin(self, gate: Gate) -> None:
        """Called when it is connected: wait for the other jobs, and until its own begins."""
        if self.seat is not None:
            gate.wait(self.seat)

    def become(self, start_ns: int, reports: socket.socket, gate: Gate) -> NoReturn:
        """In a process just forked: be this rank, from a time of the clock on, to its end."""
        status = 1
        try:
            end_with_parent()
            set_name(self.who)
            write_to(self.stderr)
            self.enter_host()
            namespaces.cover_file(Path("/etc/hosts"), self.names)
            renew_thread_pool()
            if self.plan.collectives.backend != "gloo":
                # Its threads use one heap, so that what one has freed serves the others.
                use_one_heap()
            if self.real_time_priority:
                use_real_time_priority(RANK)
            self.run(start_ns, reports, gate, packed=False)
            status = 0
        except BaseException as error:
            tell_full(error, reports)
            traceback.print_exc()
        finally:
            end_process(status)

    def enter_host(self) -> None:
        """Have this thread be in its host's network, with its class of traffic."""
        self.traffic.use()
        namespaces.enter(self.netns)

    def run(self, start_ns: int, reports: socket.socket, gate: Gate, packed: bool) -> None:
        """In a process of its own, or in a thread of one that is `packed`: be this rank from a time
        of the clock on."""
        from workloads.execution.process_groups import DefaultGroups, ThreadGroups
        from workloads.execution.rank import run_rank

        sleep_until_ns(start_ns)

        def on_iteration(iteration: int) -> None:
            report: dict[str, object] = {"iteration": iteration, **self.of_job}
            if self.real_time_priority:  # in virtual time to read the clock would take time
                report["began_ns"] = time.monotonic_ns()
            send_report(reports, report)

        join = ThreadGroups if packed or self.plan.lazy else DefaultGroups
        # Ranks that are threads would have too many mappings.
        folder = self.stderr.parent / POSTS
        posts = folder / str(self.rank) if not packed and folder.is_dir() else None
        run_rank(self.plan, on_iteration, join, lambda: self._begin(gate), posts)


def tell_full(error: BaseException, reports: socket.socket) -> None:
    """Report that there is no room for what a rank writes, where it is that: there is none for its
    last words either."""
    if isinstance(error, OSError) and error.errno in FULL:
        send_report(reports, {"full": error.errno})


def write_to(log: Path) -> None:
    """Have all that this process writes to stdout and stderr go to a file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    # The parent may have replaced these two (a test runner captures them).
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def end_process(status: int) -> NoReturn:
    """Written output goes out; nothing that was forked with this process is torn down."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def use_one_heap() -> None:
    """Have the threads that this process starts share a heap (mallopt(3))."""
    _libc.mallopt(_M_ARENA_MAX, 1)


def send_report(reports: socket.socket, report: dict[str, object]) -> None:
    """To `Launcher.run`, from any process and thread."""
    reports.sendall((json.dumps(report) + "\n").encode())


def set_name(name: str) -> None:
    """The name of this thread, or process, in `top` and in the kernel's messages: 15 bytes."""
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)

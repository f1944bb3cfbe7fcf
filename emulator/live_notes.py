"""How far a run is, in files of its directory, for who looks at it while it goes.

`live/state.json` has the last progress and the clock; `live/calls.json` what ranks have called;
`live/ports.jsonl` the ports over time so far, as ports.jsonl has them afterwards. The folder goes
with the run.

A run does not notice: the memory of a guest is read from outside. The calls of ranks are in the
guest's own memory: there the experiment writes them down, at the begin of each iteration, in no
virtual time. On the native kernel there are no ports: to read them takes time from the run.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from emulator.job_directories import job_directory
from emulator.network.samples import line_of
from emulator.progress import PROGRAM_STREAMS, Progress, Report
from emulator.ranks.seen_calls import LIVE, SeenCalls, write_whole
from emulator.virtual.variables import VirtualClock
from emulator.virtual.watched_ports import WatchedPorts
from topologies.spec.spec import Spec

_STATE_EVERY_S, _PORTS_EVERY_S = 0.2, 0.5


class LiveNotes:
    """Notes how far a run is. A context manager: the folder is there as long."""

    def __init__(self, spec: Spec, directory: Path, report: Report) -> None:
        """`report` is told what `report` of this is told."""
        self._folder = directory / LIVE
        self._report = report
        self._state = Progress("start", "the run begins")
        self._iteration: Progress | None = None
        self._calls = SeenCalls(
            [(job, job_directory(directory, job) / "ranks") for job in spec.ranks_by_job]
        )
        self._ports: WatchedPorts | None = None
        self._clock: VirtualClock | None = None
        self._started = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._note, name="live-notes", daemon=True)

    def __enter__(self) -> LiveNotes:
        self._folder.mkdir()
        self._write_state()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def report(self, progress: Progress) -> None:
        """Something happened."""
        if progress.iteration is not None:
            self._iteration = progress
        if progress.stage not in PROGRAM_STREAMS:
            known = self._state.sent_bytes
            self._state = replace(
                progress,
                detail=progress.detail or self._state.detail,
                sent_bytes=known if progress.sent_bytes is None else progress.sent_bytes,
            )
        self._report(progress)

    def watch(self, pid: int, symbols: Path) -> None:
        """A guest runs the experiment. `pid` is its first process, whose memory has the ports and
        the clock, `symbols` its kernel's System.map."""
        with suppress(ValueError):  # GROUNDWIRE_KERNEL_IMAGE may name one without its list of ports
            self._ports = WatchedPorts(pid, symbols)
        self._clock = VirtualClock(pid, symbols)

    def _note(self) -> None:
        ports_at = 0.0
        while not self._done.wait(_STATE_EVERY_S):
            with suppress(OSError):  # the run's end takes away what is read, a full disk the rest
                if self._clock is None:
                    self._calls.look()
                    self._calls.write(self._folder)
                self._write_state()
                if time.monotonic() - ports_at >= _PORTS_EVERY_S:
                    self._write_ports()
                    ports_at = time.monotonic()

    def _write_ports(self) -> None:
        if self._ports is None:
            return
        lines = [line_of(name, samples) for name, samples in self._ports.read().items()]
        if lines:
            write_whole(self._folder / "ports.jsonl", "".join(lines))

    def _write_state(self) -> None:
        clock_ns, sent_bytes = self._state.clock_ns, self._state.sent_bytes
        if self._clock is not None:
            clock_ns, sent_bytes = self._clock.read_ns(), self._clock.sent_bytes()
        began = self._iteration
        state = {
            "stage": self._state.stage,
            "detail": self._state.detail,
            "iteration": None if began is None else began.iteration,
            "iterations": None if began is None else began.iterations,
            "clock_ns": clock_ns,
            "sent_bytes": sent_bytes,
            "wall_s": round(time.monotonic() - self._started, 1),
        }
        write_whole(self._folder / "state.json", json.dumps(state))

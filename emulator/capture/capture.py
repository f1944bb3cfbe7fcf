"""Starting and stopping a capture: one process for all ports."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from emulator.capture.port import CaptureError, CapturePort, CaptureStats
from emulator.capture.recorder import FLUSH, STOP, CapturePlan, record
from emulator.capture.ring_room import Backend

INDEX_FILE: Final = "index.json"


class Capture:
    """A running capture. `stop` it once; leaving a `with` block stops it as well."""

    def __init__(self, plan: CapturePlan, process: BaseProcess, control: Connection) -> None:
        self._plan = plan
        self._process = process
        self._control = control
        self._stats: list[CaptureStats] | None = None

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.is_alive():
            self.stop()

    @property
    def process_id(self) -> int:
        """The number of the capture process."""
        assert self._process.pid is not None
        return self._process.pid

    def flush(self) -> None:
        """Have every packet that came before in its file, and write `index.json`; the capture goes
        on. Raises CaptureError."""
        if self._stats is None:
            self._write_index(self._asked(FLUSH))

    def stop(self) -> list[CaptureStats]:
        """End the capture; returns when every packet that came before is in its file.

        Also writes `index.json`. Raises CaptureError when the process died or the disk
        refused the packets.
        """
        if self._stats is not None:
            return self._stats
        try:
            self._stats = self._asked(STOP)
        finally:
            self._process.join()
            self._control.close()
        self._write_index(self._stats)
        return self._stats

    def _asked(self, what: str) -> list[CaptureStats]:
        try:
            self._control.send(what)
            outcome = self._control.recv()
        except (EOFError, OSError) as error:
            self._process.join()
            raise CaptureError(
                f"the capture process ended by itself (exit code {self._process.exitcode})"
            ) from error
        if isinstance(outcome, str):
            raise CaptureError(outcome)
        return list(outcome)

    def _write_index(self, stats: Sequence[CaptureStats]) -> None:
        # Packets carry CLOCK_REALTIME, the ranks' log CLOCK_MONOTONIC: this joins the two.
        index = {
            "backend": self._plan.backend,
            "snaplen": self._plan.snaplen,
            "filter": self._plan.filter,
            "clock_offset_ns": _clock_offset_ns(),
            "captures": [one.as_dict() for one in stats],
        }
        path = self._plan.directory / INDEX_FILE
        path.write_text(json.dumps(index, indent=1) + "\n")


def start_capture(
    ports: Sequence[CapturePort],
    directory: Path,
    snaplen: int = 160,
    backend: Backend = "auto",
    filter: str | None = None,
    *,
    real_time: bool = True,
    held_ns: int = 0,
) -> Capture:
    """Start capturing both directions of each port into `directory`.

    Without `real_time`, reading packets takes no time. `held_ns` is how long interfaces hold what
    they receive. `backend` auto is rings in virtual time, where there is memory for them, and
    sockets elsewhere.

    Returns when every packet from now on will be captured. Needs CAP_NET_RAW,
    CAP_NET_ADMIN and CAP_SYS_ADMIN (to enter the namespaces).

    Raises:
        CaptureError: a port that cannot be opened, a filter that libpcap refuses.
        OSError: the directory cannot be made.
    """
    directory.mkdir(parents=True, exist_ok=True)
    plan = CapturePlan(tuple(ports), directory, snaplen, backend, filter, real_time, held_ns)
    # Forked, not spawned: a fresh interpreter would import everything again, and the ports'
    # namespaces are reached by path either way.
    context = multiprocessing.get_context("fork")
    control, far = context.Pipe()
    process = context.Process(
        target=_record, args=(plan, far, control), name="groundwire-capture", daemon=True
    )
    process.start()
    far.close()
    try:
        answer = control.recv()
    except EOFError:
        answer = "the capture process ended before it was ready"
    if answer not in ("ring", "socket"):
        process.join()
        raise CaptureError(str(answer))
    return Capture(replace(plan, backend=answer), process, control)


def _record(plan: CapturePlan, control: Connection, parents_end: Connection) -> None:
    # Our copy of the other end would keep the pipe open when the session dies.
    parents_end.close()
    record(plan, control)


def _clock_offset_ns() -> int:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, from the closest of a few pairs of readings."""
    closest = None
    for _ in range(5):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if closest is None or after - before < closest[0]:
            closest = after - before, real - (before + after) // 2
    assert closest is not None
    return closest[1]

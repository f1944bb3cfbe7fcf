"""Runs the packet engine on a scenario: columns in, columns out, through pipes."""

from __future__ import annotations

import signal
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO

import numpy as np

from simulation.building import engine_environment, engine_program
from simulation.columns import Column, pack, unpack
from simulation.failure import SimulationError
from simulation.timeline import EngineTimeline

_MAGIC_BYTES = 8
_PROGRESS = b"GWPROG01"
_PROGRESS_MS = 200
_NUMBERS = struct.Struct("<3q")


@dataclass(frozen=True, slots=True)
class EngineProgress:
    """How far the engine is: the time that it is in the scenario, and of its messages those that
    have been received."""

    now_ns: int
    received: int
    messages: int


Report = Callable[[EngineProgress], None]


def run_engine(scenario: Mapping[str, Column], progress: Report | None = None) -> EngineTimeline:
    """The timeline of a scenario (engine/README.md has the columns of both). `progress` is called
    some times a second.

    Raises SimulationError when the engine refuses the scenario, in its own words, or cannot be had.
    An exception that comes meanwhile, such as KeyboardInterrupt or one of `progress`, ends the
    engine.
    """
    asked = np.array([0 if progress is None else _PROGRESS_MS], dtype=np.int64)
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            [str(engine_program())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=engine_environment(),
        ) as process,
    ):
        try:
            parts = pack({**scenario, "progress_ms": asked})
            timeline = _exchange(process, parts, progress)
            status = process.wait()
        except BaseException:
            process.kill()
            raise
        if status != 0:
            said.seek(0)
            words = said.read().decode(errors="replace").strip()
            raise SimulationError(f"packet engine: {words or _end_of(status)}")
    return EngineTimeline(unpack(timeline))


def _end_of(status: int) -> str:
    """Why a process ended that did not say so: where the system kills it, or gives it none of the
    memory that it asks for, that is what it lacks."""
    if status not in (-signal.SIGKILL, -signal.SIGABRT):
        return f"ended with status {status}"
    return f"ended by {signal.Signals(-status).name}, as where memory is short (status {status})"


def _exchange(
    process: subprocess.Popen[bytes],
    parts: Iterable[bytes | memoryview],
    progress: Report | None,
) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for part in parts:
            process.stdin.write(part)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it says why
    return _answer(process.stdout, progress)


def _answer(stream: IO[bytes], progress: Report | None) -> bytes:
    """The bytes of the timeline, before which the engine says how far it is."""
    while (magic := stream.read(_MAGIC_BYTES)) == _PROGRESS:
        numbers = stream.read(_NUMBERS.size)
        if progress is not None and len(numbers) == _NUMBERS.size:
            progress(EngineProgress(*_NUMBERS.unpack(numbers)))
    return magic + stream.read()

"""Runs the packet engine on a scenario: columns in, columns out, through pipes."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterable, Mapping

from simulation.building import engine_program
from simulation.columns import Column, pack, unpack
from simulation.failure import SimulationError
from simulation.timeline import EngineTimeline


def run_engine(scenario: Mapping[str, Column]) -> EngineTimeline:
    """The timeline of a scenario (engine/README.md has the columns of both).

    Raises SimulationError when the engine refuses the scenario, in its own words, or cannot be had.
    An exception that comes meanwhile, such as KeyboardInterrupt, ends the engine.
    """
    with subprocess.Popen(
        [str(engine_program())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            return _exchange(process, pack(scenario))
        except BaseException:
            process.kill()
            raise


def _exchange(
    process: subprocess.Popen[bytes], parts: Iterable[bytes | memoryview]
) -> EngineTimeline:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    said: list[bytes] = []
    listener = threading.Thread(target=lambda: said.append(process.stderr.read()), daemon=True)  # type: ignore[union-attr]
    listener.start()
    try:
        for part in parts:
            process.stdin.write(part)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it says why
    timeline = process.stdout.read()
    status = process.wait()
    listener.join()
    if status != 0:
        words = b"".join(said).decode(errors="replace").strip()
        raise SimulationError(f"packet engine: {words or f'ended with status {status}'}")
    return EngineTimeline(unpack(timeline))

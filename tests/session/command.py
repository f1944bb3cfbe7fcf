"""Runs the command line as a user does, in a process of its own, from this clone or a copy."""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_SERVER = "tests.session.command_server"


class _Commands:
    """The server of commands of this process: it starts with the first of them, and anew when one
    could not be waited for."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def run(
        self, arguments: list[str], directory: Path, environment: Mapping[str, str], limit_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Raises TimeoutExpired after it was killed."""
        with tempfile.TemporaryDirectory() as place:
            outputs = [Path(place, name) for name in ("stdout", "stderr")]
            for output in outputs:
                output.touch()
            order = {
                "arguments": arguments,
                "directory": str(directory),
                "environment": dict(environment),
                "stdout": str(outputs[0]),
                "stderr": str(outputs[1]),
            }
            status = self._ended(json.dumps(order), arguments, limit_s)
            said = [output.read_text() for output in outputs]
        return subprocess.CompletedProcess(arguments, status, *said)

    def _ended(self, order: str, arguments: list[str], limit_s: float) -> int:
        server = self._server or self._started()
        assert server.stdin is not None and server.stdout is not None
        child = None
        try:
            print(order, file=server.stdin, flush=True)
            child = int(server.stdout.readline())
            if not _has_ended(child, limit_s):
                raise subprocess.TimeoutExpired(arguments, limit_s)
            return int(server.stdout.readline())
        except BaseException:
            if child is not None:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self.end()
            raise

    def _started(self) -> subprocess.Popen[str]:
        self._server = subprocess.Popen(
            [sys.executable, "-m", _SERVER],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.end)
        return self._server

    def end(self) -> None:
        """End the server; the next command starts another."""
        if self._server is not None:
            self._server.kill()
            self._server.communicate()
            self._server = None
            atexit.unregister(self.end)


def _has_ended(process: int, limit_s: float) -> bool:
    """Wait for a process that is not ours; whether it ends within the limit."""
    try:
        ending = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([ending], [], [], limit_s)[0])
    finally:
        os.close(ending)


_commands = _Commands()


def forked(
    arguments: list[str], directory: Path, environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run `groundwire ARGUMENTS` in a directory, in a process forked from one that has imported
    Groundwire."""
    return _commands.run(arguments, directory, environment, timeout_s)


def groundwire(
    *arguments: str | Path, clone: Path = ROOT, timeout_s: float = 800
) -> subprocess.CompletedProcess[str]:
    """Run `groundwire ARGUMENTS` in that clone; returns what it printed and its exit code."""
    if clone == ROOT:
        return forked([*map(str, arguments)], ROOT, os.environ, timeout_s)
    return subprocess.run(
        [sys.executable, "-m", "groundwire.cli", *map(str, arguments)],
        cwd=clone,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def run_spec(directory: Path, text: str, *options: str) -> Path:
    """Write a spec to `directory` and run it in the virtual kernel; returns the run directory."""
    spec, out = directory / "spec.yaml", directory / "run"
    spec.write_text(text)
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out, *options)
    assert done.returncode == 0, done.stderr
    return out


def valid_rows(run: Path, iteration: int) -> list[dict[str, Any]]:
    """The collectives of an iteration, of a run that must be valid."""
    found = json.loads((run / "result.json").read_text())
    assert found["valid"] is True
    return [row for row in found["collectives"] if row["iteration"] == iteration]


def copy_clone(to: Path) -> Path:
    """A copy of this clone's files that a run needs; runs there are by this clone's Python."""
    ignored = shutil.ignore_patterns(".*", "runs", "__pycache__", "*.egg-info", "tests", "docs")
    return Path(shutil.copytree(ROOT, to, ignore=ignored))


def result_of(directory: Path) -> dict[str, Any]:
    """result.json less the wall time, which is the one thing that may differ between runs."""
    result: dict[str, Any] = json.loads((directory / "result.json").read_text())
    del result["wall_s"]
    return result

"""A command that outlives the connection that started it: its log, its end, and how it is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.session.command import ROOT


def _detached(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """As over ssh: it returns only when nobody holds its output open."""
    return subprocess.run(
        [sys.executable, "-m", "groundwire.remote.detached", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _state(directory: Path) -> dict[str, Any]:
    return dict(json.loads(_detached("state", directory).stdout))


def _ended(directory: Path) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while (state := _state(directory))["running"]:
        assert time.monotonic() < deadline
    return state


def test_a_command_goes_on_after_start_has_returned(tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo begun; until [ -e {go} ]; do sleep 0.05; done; echo done >&2; exit 3"
    assert _detached("start", tmp_path, "bash", "-c", script).returncode == 0
    assert _state(tmp_path)["running"]
    go.touch()
    assert _ended(tmp_path) == {"running": False, "exit_code": 3, "last_lines": ["begun", "done"]}


def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    done = _detached("start", tmp_path, "/no/such/program")
    assert done.returncode != 0
    assert "/no/such/program" in done.stderr


def test_stop_is_an_interrupt_and_waits_for_the_end(tmp_path: Path) -> None:
    code = (
        "import time\ntry: time.sleep(1000)\n"
        "except KeyboardInterrupt: time.sleep(0.3); print('tidied'); raise SystemExit(130)"
    )
    _detached("start", tmp_path, sys.executable, "-u", "-c", "print('up');" + "\n" + code)
    _until(lambda: bool(_state(tmp_path)["last_lines"]))
    assert _detached("stop", tmp_path).stdout == "stopped\n"
    assert _ended(tmp_path) == {
        "running": False,
        "exit_code": 130,
        "last_lines": ["up", "tidied"],
    }
    assert _detached("stop", tmp_path).stdout == "was not running\n"


def test_an_interrupt_is_heard_though_the_starter_ignores_interrupts(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(1000)"]
    start = [sys.executable, "-m", "groundwire.remote.detached", "start", str(tmp_path), *sleep]
    subprocess.run(["bash", "-c", 'trap "" INT; exec "$@"', "bash", *start], cwd=ROOT, check=True)
    _until(lambda: bool(_state(tmp_path)["last_lines"]))
    assert _detached("stop", tmp_path).stdout == "stopped\n"
    assert "KeyboardInterrupt" in _ended(tmp_path)["last_lines"]


def test_another_process_of_the_same_number_is_not_taken_for_it(tmp_path: Path) -> None:
    known = {"pid": os.getpid(), "started": 1}
    (tmp_path / "process.json").write_text(json.dumps(known))
    assert not _state(tmp_path)["running"]
    assert _detached("stop", tmp_path).stdout == "was not running\n"


def test_one_that_was_killed_with_its_supervisor_has_no_exit_code(tmp_path: Path) -> None:
    _detached("start", tmp_path, "sleep", "1000")
    pid = json.loads((tmp_path / "process.json").read_text())["pid"]
    supervisor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    assert _ended(tmp_path)["exit_code"] is None


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("verb", ["restart", ""])
def test_other_verbs_are_refused(tmp_path: Path, verb: str) -> None:
    done = _detached(verb, tmp_path)
    assert done.returncode == 1
    assert "start, state or stop" in done.stderr

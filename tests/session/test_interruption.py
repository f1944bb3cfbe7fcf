"""Signals that end a command: at once, in a word, with nothing left that was not asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.session.command import ROOT
from tests.session.leftovers import left_by
from tests.slowdown import slowdown

_PATIENCE_S = 300
_STAR = """
name: star
fabric: {{kind: flat, hosts: 2, link: {{rate: 10Gbps, delay: 1us, mtu: 1500}}}}
workload: {{kind: collectives, ranks: 2, iterations: {iterations},
  operations: [{{kind: all_reduce, size: 1MB}}]}}
"""
_WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "ended, as its terminal has gone",
}


def _heed_hang_up() -> None:
    """As a terminal's command does, also where the tests run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("stage", "number", "has_result"),
    [
        ("booting the virtual kernel", signal.SIGHUP, False),
        ("fabric up", signal.SIGTERM, False),
        ("iteration 1 (2 of 1000)", signal.SIGINT, False),
        ("writing the report", signal.SIGINT, True),
    ],
    ids=["boot", "fabric", "iteration", "report"],
)
def test_a_signal_ends_a_run_in_any_stage(
    tmp_path: Path, stage: str, number: signal.Signals, has_result: bool
) -> None:
    """Twice, as impatient people do; and to all of the foreground group, as a terminal does. In no
    stage can it end by itself before: the report waits for somebody to read it."""
    spec, out = tmp_path / "star.yaml", tmp_path / "run"
    spec.write_text(_STAR.format(iterations=1 if has_result else 1000))
    command = [sys.executable, "-m", "groundwire.cli", "run", str(spec), "--kernel", "virtual"]
    process = subprocess.Popen(
        [*command, "--out", str(out)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=_heed_hang_up,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "fabric up" in line:
                os.mkfifo(out / "report.html")
            if stage in line:
                break
        for _ in range(2):
            os.killpg(process.pid, number)
        asked = time.monotonic()
        printed, said = process.communicate(timeout=_PATIENCE_S)
        took = time.monotonic() - asked
    finally:
        process.kill()
    assert process.returncode == 128 + number, said
    assert took < 2 * slowdown()
    about, last = said.splitlines()[-2:]
    assert about.startswith(f"{out} has its result" if has_result else f"{out} has no result")
    assert last == f"groundwire: {_WORDS[number]}"
    assert "Traceback" not in said
    assert printed == ""
    assert left_by(process.pid) == []
    assert (out / "result.json").exists() == has_result
    if has_result:
        assert json.loads((out / "result.json").read_text())["valid"]


def _python(code: str) -> subprocess.Popen[str]:
    program = "import os, signal, time\nfrom emulator.linux.signals import *\n" + code
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def _ended(code: str) -> tuple[int, str, str]:
    process = _python(code)
    printed, said = process.communicate(timeout=_PATIENCE_S)
    return process.returncode, printed, said


def test_cleaning_up_is_not_interrupted_again() -> None:
    code, printed, said = _ended("""
def body():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(100)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        print("cleaned up", flush=True)
run_interruptible(body)
""")
    assert (code, printed, said) == (143, "cleaned up\n", "groundwire: terminated\n")


# Python 3.11 makes a RuntimeError of what is raised while a class is made, as when it imports; and
# who cleans up may meet a terminal that has gone.
@pytest.mark.parametrize(
    "raised", ['RuntimeError("Error calling __set_name__") from interrupt', 'OSError("terminal")']
)
def test_an_interrupt_by_another_name_is_one(raised: str) -> None:
    code, _, said = _ended(f"""
def body():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(100)
    except KeyboardInterrupt as interrupt:
        raise {raised}
run_interruptible(body)
""")
    assert (code, said) == (130, "groundwire: interrupted\n")


# Callbacks in which Python prints "Exception ignored in ..." and goes on
@pytest.mark.parametrize(
    "happens",
    [
        "os.register_at_fork(after_in_parent=interrupt); os.waitpid(os.fork() or os._exit(0), 0)",
        "type('Last', (), {'__del__': interrupt})()",
    ],
    ids=["fork", "finaliser"],
)
def test_an_interrupt_that_python_drops_is_heeded_all_the_same(happens: str) -> None:
    code, printed, said = _ended(f"""
def interrupt(*_):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0)
def body():
    try:
        {happens}
        time.sleep(100)
    finally:
        print("cleaned up", flush=True)
run_interruptible(body)
""")
    assert (code, printed, said) == (143, "cleaned up\n", "groundwire: terminated\n")


def test_who_is_started_by_nohup_outlives_its_terminal() -> None:
    code, printed, said = _ended("""
signal.signal(signal.SIGHUP, signal.SIG_IGN)
def body():
    os.kill(os.getpid(), signal.SIGHUP)
    print("still here")
run_interruptible(body)
""")
    assert (code, printed, said) == (0, "still here\n", "")

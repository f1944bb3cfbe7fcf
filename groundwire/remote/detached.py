"""A command in a session of its own on a host, so that no broken connection ends it.

    python -m groundwire.remote.detached start DIR COMMAND...    returns when it runs
    python -m groundwire.remote.detached state DIR    prints "running", "exit_code", "last_lines"
    python -m groundwire.remote.detached stop DIR     ends it as Ctrl-C does

DIR gets `log` with what the command says, `process.json` and at the end `exit_code`. It needs the
standard library alone, and starts in milliseconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_LAST_LINES = 20
_PATIENCE_S = 30.0


def start(directory: Path, command: list[str]) -> None:
    """Returns when the command runs. Raises OSError when it cannot be started."""
    ready, told = os.pipe()
    if os.fork() != 0:
        os.close(told)
        with os.fdopen(ready) as answer:
            failure = answer.read()
        if failure:
            raise OSError(failure)
        return
    os.close(ready)
    os.setsid()
    # The process that started this may ignore interrupts, as a shell's background does, and passes
    # that on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with open(directory / "log", "wb") as log, open(os.devnull, "rb") as nothing:
            process = subprocess.Popen(command, stdin=nothing, stdout=log, stderr=log)
            for stream in (0, 1, 2):  # the connection's, which waits until nobody has them open
                os.dup2(nothing.fileno(), stream)
        _write(
            directory / "process.json",
            json.dumps({"pid": process.pid, "started": _state_and_start(process.pid)[1]}),
        )
    except OSError as error:
        os.write(told, str(error).encode())
        os._exit(1)
    os.close(told)
    code = process.wait()
    _write(directory / "exit_code", str(code if code >= 0 else 128 - code))
    os._exit(0)


def state(directory: Path) -> dict[str, object]:
    """`exit_code` is None while it runs, and when it was killed together with its supervisor."""
    running = _running(directory)
    code = directory / "exit_code"
    log = directory / "log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return {
        "running": running is not None and not code.exists(),
        "exit_code": int(code.read_text()) if code.exists() else None,
        "last_lines": lines[-_LAST_LINES:],
    }


def stop(directory: Path) -> bool:
    """Whether there was something to stop. It has ended when this returns."""
    process = _running(directory)
    if process is None:
        return False
    deadline = time.monotonic() + _PATIENCE_S
    _signal(process, signal.SIGINT)
    while _running(directory) is not None:
        if time.monotonic() > deadline:
            _signal(process, signal.SIGKILL)
        time.sleep(0.05)
    return True


def _running(directory: Path) -> int | None:
    """The process, if it is still the one that was started."""
    try:
        known = json.loads((directory / "process.json").read_text())
        state, started = _state_and_start(known["pid"])
    except (OSError, ProcessLookupError):
        return None
    return int(known["pid"]) if started == known["started"] and state != "Z" else None


def _state_and_start(pid: int) -> tuple[str, int]:
    """proc(5): fields 3 and 22 of stat. A process and its start are unique until the next boot."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _write(path: Path, text: str) -> None:
    """Whole, or not at all."""
    scratch = path.with_suffix(".new")
    scratch.write_text(text)
    scratch.rename(path)


def main(arguments: list[str]) -> None:
    """`start`, `state` or `stop`, and a run's directory."""
    verb, directory = arguments[0], Path(arguments[1])
    match verb:
        case "start":
            start(directory, arguments[2:])
        case "state":
            print(json.dumps(state(directory)))
        case "stop":
            print("stopped" if stop(directory) else "was not running")
        case _:
            sys.exit(f"start, state or stop, not {verb}")


if __name__ == "__main__":
    main(sys.argv[1:])

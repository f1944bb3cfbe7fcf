"""Commands in processes that are forked from one which has imported Groundwire.

A command imports for longer than most take to do their work. Here it is done once. A command
has its arguments, directory, environment and output as from a shell, and a process of its own;
tests of how commands begin start a Python (command.py).

    python -m tests.session.command_server

A line of JSON asks for a command. The answer is its process's number, then its exit status.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import sys
import threading
import traceback
from importlib import import_module
from typing import Any, NoReturn

_IMPORTED = (
    "groundwire.cli",
    "groundwire.finishing",
    *(f"groundwire.commands.{name}" for name in ("run", "execute", "predict", "report")),
    "groundwire.commands.traces.trace",
    "groundwire.commands.labs.lab",
)


def main() -> None:
    """Serve until standard input ends."""
    gc.disable()
    for name in _IMPORTED:
        import_module(name)
    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(json.loads(line))
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(order: dict[str, Any]) -> NoReturn:
    """Run the command of an order, as `python -m groundwire.cli` in its directory does."""
    status = 1
    try:
        os.chdir(order["directory"])
        os.environ.clear()
        os.environ.update(order["environment"])
        for number, name in enumerate((os.devnull, order["stdout"], order["stderr"])):
            file = os.open(name, os.O_WRONLY | os.O_APPEND if number else os.O_RDONLY)
            os.dup2(file, number)
            os.close(file)
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            os.fdopen(2, "wb", 0, closefd=False),
            errors="backslashreplace",
            line_buffering=True,
        )
        cli = sys.modules["groundwire.cli"]
        sys.modules["__main__"] = cli
        sys.argv = [str(cli.__file__), *order["arguments"]]
        sys.path[0] = order["directory"]
        status = _exit_status(cli)
        at_exit: Any = (threading, "_shutdown"), (atexit, "_run_exitfuncs")
        for module, name in at_exit:  # as Python's own ending does
            getattr(module, name)()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _exit_status(cli: Any) -> int:
    """As Python makes it of what `main` raises."""
    try:
        cli.main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    main()

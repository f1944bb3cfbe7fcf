"""The `groundwire` command. It heeds signals before it imports what takes time."""

from __future__ import annotations

import io
import os
import sys

from emulator.linux.signals import is_interrupt, run_interruptible
from groundwire.rooms import ROOMS
from topologies.installation import in_clone


def main() -> None:
    """Entry point."""
    run_interruptible(_main)


def _main() -> None:
    try:
        from groundwire.commands.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ROOMS:
            raise
        sys.exit(
            f"error: {sys.executable} has no {error.name}, which Groundwire needs; "
            f"{in_clone('`make setup` makes .venv/bin/python, which has it', 'pip installs it')}"
        )

    # A terminal without UTF-8 and a file's name that is none show escapes, and stop nothing.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    failure: OSError | None = None
    code: str | int | None = 0
    try:
        app()
    except SystemExit as end:
        # A reader that leaves early is no failure; click makes one of it.
        code = 0 if isinstance(end.__context__, BrokenPipeError) else end.code
    except OSError as error:
        if is_interrupt(error) or error.filename is not None:  # writing names no file
            raise
        failure = error
    failure = _flush() or failure
    if failure is not None and not code:
        print(f"error: standard output: {failure.strerror}", file=sys.stderr)
        code = 1
    sys.exit(code)


def _flush() -> OSError | None:
    """Write the rest of the output, and drop what cannot be written: Python's own ending would tell
    of that in its own words. Returns why, unless its reader has only left."""
    if sys.stdout is None:  # closed by who started us
        return None
    try:
        sys.stdout.flush()
        return None
    except OSError as error:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return None if isinstance(error, BrokenPipeError) else error


if __name__ == "__main__":
    main()

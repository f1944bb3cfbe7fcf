"""The `groundwire` command. It heeds signals before it imports what takes time."""

from __future__ import annotations

import io
import sys

from emulator.interruption import run_heeding_signals


def main() -> None:
    """Entry point."""
    run_heeding_signals(_main)


def _main() -> None:
    from emulator.commands.app import app

    # A terminal without UTF-8 and a file's name that is none show escapes, and stop nothing.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    app()


if __name__ == "__main__":
    main()

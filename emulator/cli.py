"""The `groundwire` command. It heeds signals before it imports what takes time."""

from __future__ import annotations

from emulator.interruption import run_heeding_signals


def main() -> None:
    """Entry point."""
    run_heeding_signals(_main)


def _main() -> None:
    from emulator.commands.app import app

    app()


if __name__ == "__main__":
    main()

"""How a command ends: its exit code, and mistakes told in one message instead of a trace."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from emulator.linux.signals import is_interrupt
from emulator.ranks.failures.full_directory import FULL
from groundwire.commands.console.plain_text import visible
from groundwire.rooms import ROOMS

P = ParamSpec("P")


FAILED = 1
BAD_INPUT = 2


def outcome(command: Callable[P, int]) -> Callable[P, None]:
    """Make a function that returns an exit code a typer command.

    Exit codes: 0 done and valid, 1 failed, 2 bad input, 3 done but invalid, 128 and the number
    of a signal that ended it (130: Ctrl-C).
    """

    @functools.wraps(command)
    def ends(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except BrokenPipeError:
            code = 0  # whoever read our output has gone: not worth a message
        except ValueError as error:
            # Bad specs, run directories and predictors are ValueErrors of our own classes.
            if type(error).__module__.split(".")[0] not in ROOMS:
                raise
            print(f"error: {visible(str(error))}", file=sys.stderr)
            code = BAD_INPUT
        except (RuntimeError, OSError) as error:
            if isinstance(error, typer.Exit | typer.Abort) or is_interrupt(error):
                raise
            print(f"error: {visible(_told(error))}", file=sys.stderr)
            code = FAILED
        raise typer.Exit(code)

    return ends


def _told(error: RuntimeError | OSError) -> str:
    """The file, if one is known, and what is wrong with it, without Python's `[Errno 21]`."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename is not None:
            return f"{error.filename}: {error.strerror}"
        if error.errno in FULL:  # a write names no file
            return f"{error.strerror}, where standard output or a file was written"
        return error.strerror
    return str(error)

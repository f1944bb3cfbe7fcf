"""The `--` between our own arguments and those of a program, put in where a user left it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def separated(command: Any, arguments: Sequence[str], own: int) -> list[str]:
    """`arguments` with `--` before the program, which begins behind `own` arguments that are no
    options of the click command: whatever looks like an option from there on is the program's.

    Where a `--` is there, or an option is not known, they are left as they are.
    """
    takes_value = {
        name: not parameter.is_flag
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    at = seen = 0
    while at < len(arguments):
        word = arguments[at]
        if not word.startswith("-") or word == "-":
            if seen == own:
                return [*arguments[:at], "--", *arguments[at:]]
            seen += 1
            at += 1
            continue
        name, given, _ = word.partition("=")
        short = word[:2] if not word.startswith("--") and len(word) > 2 else None
        if short in takes_value:
            at += 1  # -n4: its value is with it
        elif name not in takes_value:
            break
        else:
            at += 2 if takes_value[name] and not given else 1
    return list(arguments)

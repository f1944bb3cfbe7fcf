"""The text that `--help` shows of a command, where typer's own choice would mislead."""

from __future__ import annotations

import inspect
from typing import Any


def tidy_help(command: Any) -> None:
    """Make a typer command's help fit the terminal, and show types only where a value is taken.

    Flags lose the `<bool>` that looks like a value to give, arguments the Python type of what their
    name says already, and the usage line the braces that stand for a choice elsewhere. Bounds are
    left to the help texts: beside the type they take the room that long options need. Typer has no
    setting for any of this, so it is done to what its minor version of pyproject.toml asks for.
    """
    command.help = _reflowed(command.help or "")
    help_option = command.get_help_option

    def help_without_type(ctx: Any) -> Any:
        return without_type(help_option(ctx))

    command.get_help_option = help_without_type
    format_help = command.format_help

    def without_short_help(ctx: Any, formatter: Any) -> None:
        """`-h` is taken and not shown: its column is room that long options need."""
        option = help_without_type(ctx)
        names = option.opts
        option.opts = [name for name in names if name.startswith("--")]
        try:
            format_help(ctx, formatter)
        finally:
            option.opts = names

    command.format_help = without_short_help
    for parameter in command.params:
        parameter._get_number_range_help_str = lambda: None
        is_argument = parameter.param_type_name == "argument"
        if is_argument:
            parameter.get_usage_pieces = _usage(parameter)
        if is_argument or parameter.is_flag:
            without_type(parameter)


def without_type(parameter: Any) -> Any:
    """The same option or argument; no type is shown beside it."""
    parameter.display_type_rich = lambda ctx: None
    return parameter


def _usage(argument: Any) -> Any:
    name = (argument.metavar or argument.name.upper()) + ("..." if argument.nargs != 1 else "")
    return lambda ctx: [name if argument.required else f"[{name}]"]


def _reflowed(text: str) -> str:
    """Without the line breaks of the source, which a terminal of another width would show."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

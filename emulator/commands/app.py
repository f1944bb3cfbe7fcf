"""All subcommands under one name; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from emulator.commands.help_text import tidy_help, without_type
from emulator.commands.outcome import outcome

COMMANDS = {
    "run": "emulator.commands.run:run",
    "sweep": "emulator.commands.sweep:sweep",
    "predict": "emulator.commands.predict:predict_command",
    "compare": "emulator.commands.compare:compare_command",
    "calibrate": "emulator.commands.calibrate:calibrate_command",
    "report": "emulator.commands.report:report",
    "shell": "emulator.commands.shell:shell",
    "astra": "emulator.commands.astra:astra",
    "trace": "emulator.commands.trace:trace_app",
    "doctor": "emulator.commands.doctor:doctor",
    "clean": "emulator.commands.clean:clean",
    "kernel": "emulator.commands.kernel:kernel_app",
}
"""Subcommand -> "module:attribute": a function that returns an exit code, or a typer app."""


class Commands(TyperGroup):
    """Imports the subcommand that is asked for, not the others: some need scipy or matplotlib."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_help_option(self, ctx: Any) -> Any:
        return without_type(super().get_help_option(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            command: Any = get_group(found)
        else:
            single = typer.Typer(add_completion=False)
            single.command(cmd_name)(outcome(found))
            command = get_command(single)
        for each in (command, *getattr(command, "commands", {}).values()):
            tidy_help(each)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=Commands,
    name="groundwire",
    help="A live emulation testbed for training-cluster networks: real Gloo workers on an emulated "
    "fabric, every measurement with a verdict and a prediction beside it.",
    epilog="Start with: groundwire run topologies/dlrm-fat-tree-k4.yaml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _groundwire() -> None:
    """All options belong to subcommands."""

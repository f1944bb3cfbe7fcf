"""All subcommands under one name; each is imported when it is asked for."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import entry_points, version
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from groundwire.commands.console.help_text import tidy_help, without_type
from groundwire.commands.console.outcome import outcome
from groundwire.commands.console.separator import separated
from groundwire.importing import imported
from topologies.installation import ready_specs

COMMANDS = {
    "init": "groundwire.commands.specs.init:init",
    "validate": "groundwire.commands.specs.validate:validate",
    "run": "groundwire.commands.run:run",
    "exec": "groundwire.commands.execute:execute",
    "search": "groundwire.commands.search:search",
    "sweep": "groundwire.commands.sweep:sweep",
    "study": "groundwire.commands.study:study_command",
    "design": "groundwire.commands.designs.design:design_command",
    "predict": "groundwire.commands.predict:predict_command",
    "nccl": "groundwire.commands.nccl.choices:choices",
    "nccl-tests": "groundwire.commands.nccl.tests:nccl_tests",
    "compare": "groundwire.commands.compare:compare_command",
    "calibrate": "groundwire.commands.calibrate:calibrate_command",
    "report": "groundwire.commands.report:report",
    "view": "groundwire.commands.view:view",
    "shell": "groundwire.commands.shell:shell",
    "astra": "groundwire.commands.astra:astra",
    "trace": "groundwire.commands.traces.trace:trace_app",
    "lab": "groundwire.commands.labs.lab:lab_app",
    "doctor": "groundwire.commands.doctor:doctor",
    "clean": "groundwire.commands.clean:clean",
    "kernel": "groundwire.commands.kernel:kernel_app",
    "remote": "groundwire.commands.remote:remote_app",
}
"""Subcommand -> "module:attribute": a function that returns an exit code, or a typer app."""

ENTRY_POINT_GROUP = "groundwire.commands"
"""Packages of others add subcommands by entry points of this group, of the same form."""


@cache
def added_commands() -> dict[str, str]:
    """The subcommands of other packages. None takes the place of one of ours."""
    found = {each.name: each.value for each in entry_points(group=ENTRY_POINT_GROUP)}
    return {name: value for name, value in found.items() if name not in COMMANDS}


_WRONG_CHOICE = re.compile(
    r"(?:Value error, )?'(?P<found>[^']*)' is not one of (?P<allowed>.*)\.$", re.S
)
_BEFORE_PROGRAM = {"exec": 1, "search": 1}
"""Subcommand that runs a program of the user's -> how many arguments of its own go before that."""


class Commands(TyperGroup):
    """Imports the subcommand that is asked for, not the others: some need scipy."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *sorted(added_commands())]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(COMMANDS, cast(Any, None))  # what typer looks for typos in

    def get_params(self, ctx: Any) -> Any:
        return [without_type(option) for option in super().get_params(ctx)]

    def get_help_option(self, ctx: Any) -> Any:
        return without_type(super().get_help_option(ctx))

    def invoke(self, ctx: Any) -> Any:
        """As typer does; a value that is near to an allowed one is told so."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as mistake:
            mistake.message = _with_suggestion(mistake.message)
            raise

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        place = COMMANDS.get(cmd_name) or added_commands().get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        found = getattr(imported(module), attribute)
        if isinstance(found, typer.Typer):
            command: Any = get_group(found)
        else:
            single = typer.Typer(add_completion=False)
            single.command(cmd_name)(outcome(found))
            command = get_command(single)
        for each in (command, *getattr(command, "commands", {}).values()):
            tidy_help(each)
        command.name = cmd_name
        if cmd_name in _BEFORE_PROGRAM:
            _separate(command, _BEFORE_PROGRAM[cmd_name])
        return command


def _with_suggestion(message: str) -> str:
    """typer's words for a wrong choice, with the value that may have been meant."""
    wrong = _WRONG_CHOICE.match(message)
    if wrong is None:
        return message
    from topologies.spec.errors import suggestion  # brings pydantic, which takes time

    near = suggestion(wrong["found"], re.findall(r"'([^']+)'", wrong["allowed"]))
    return f"found '{wrong['found']}'; {near}allowed: {wrong['allowed'].replace(chr(39), '')}"


def _separate(command: Any, own: int) -> None:
    parse = command.parse_args
    command.parse_args = lambda ctx, args: parse(ctx, separated(command, args, own))


app = typer.Typer(
    cls=Commands,
    name="groundwire",
    help="A live emulation testbed for training-cluster networks: real Gloo workers on an emulated "
    "fabric. Every run has a verdict, every measured collective its predictions.",
    epilog=f"Start with: groundwire run {ready_specs()}dlrm-fat-tree-k4.yaml. Exit codes: 0 done "
    "and valid, 1 failed, 2 bad input, 3 done but not valid, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"groundwire {version('groundwire')}")
        raise typer.Exit


@app.callback()
def _groundwire(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """All other options belong to subcommands."""

"""`groundwire shell`: Mininet's CLI on a fabric."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from groundwire.commands.run import (
    KERNELS,
    CustomOption,
    KernelChoice,
    TopoOption,
    fabric_in_place,
)
from topologies.spec.run_sections import MIN_MEMORY_BYTES
from topologies.units import format_size, parse_size_bytes

if TYPE_CHECKING:
    from emulator.mininet.shell import GuestOptions

_PROMPT = "mininet> "


class ShellRefused(ValueError):
    """The options do not go together."""


def shell(
    spec: Annotated[
        Path | None, typer.Argument(metavar="SPEC", help="The spec whose fabric to bring up.")
    ] = None,
    topo: TopoOption = None,
    custom: CustomOption = None,
    command: Annotated[
        list[str] | None,
        typer.Option(metavar="CMD", help="Run this and leave; can be repeated."),
    ] = None,
    print_fabric: Annotated[
        bool,
        typer.Option(
            "--print-fabric", help="Print the Mininet topology as a spec's `fabric`, and leave."
        ),
    ] = False,
    kernel: Annotated[
        KernelChoice,
        typer.Option(help="native needs root; virtual needs nothing; auto takes native if it can."),
    ] = KernelChoice.auto,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The virtual kernel's memory, such as 4GB."),
    ] = None,
    writable: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="A directory that programs on the virtual kernel can write to; can be repeated.",
        ),
    ] = None,
) -> int:
    """Mininet's CLI on a fabric: nodes, pingall, link a b down, h0 ping h1, iperf, and the rest.

    On the virtual kernel, `--command` runs in exact virtual time, and what you type in real time.
    Every node has its own host name, and finds the others by name. Exit code 1 when a ping was lost
    or a command failed.
    """
    from emulator.mininet.shell import ShellRequest, run_shell

    if (spec is None) == (topo is None and custom is None):
        raise ShellRefused("shell: expected either a SPEC, or --topo (with --custom, or without)")
    if print_fabric:
        if spec is not None:
            raise ShellRefused("shell: --print-fabric is for --topo and --custom; SPEC has one")
        plain = fabric_in_place(topo, custom)
        print(yaml.safe_dump(plain, sort_keys=False, default_flow_style=None), end="")
        return 0
    failed = run_shell(
        ShellRequest(spec, topo, custom),
        KERNELS[kernel],
        command or [],
        _print_line,
        _print_error,
        _guest_options(memory, writable or []),
    )
    return 1 if failed else 0


def _guest_options(memory: str | None, writable: list[Path]) -> GuestOptions:
    from emulator.mininet.shell import GuestOptions

    missing = [path for path in writable if not path.is_dir()]
    if missing:
        raise ShellRefused(f"shell: --writable {missing[0]}: expected a directory that exists")
    try:
        memory_bytes = None if memory is None else parse_size_bytes(memory)
    except ValueError as error:
        raise ShellRefused(f"shell: --memory {memory}: {error}") from None
    if memory_bytes is not None and memory_bytes < MIN_MEMORY_BYTES:
        least = format_size(MIN_MEMORY_BYTES)
        raise ShellRefused(f"shell: --memory {memory}: expected at least {least}")
    return GuestOptions(memory_bytes, tuple(path.resolve() for path in writable))


def _print_line(line: str) -> None:
    from emulator.mininet.cli import PROMPT_MARK

    if line.strip() == PROMPT_MARK:
        print(_PROMPT, end="", flush=True)
    else:
        print(line, flush=True)


def _print_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

"""Run a command as root in the virtual kernel: `python -m emulator.virtual [OPTIONS] -- CMD...`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from emulator.linux.signals import run_interruptible
from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.build import ensure_kernel
from emulator.virtual.failure import VirtualKernelError


def main(
    command: Annotated[list[str], typer.Argument(help="the command, after --")],
    no_time_travel: Annotated[bool, typer.Option(help="run in real time")] = False,
    mem: Annotated[str, typer.Option(help="guest memory, in GB or MB")] = "4GB",
    rw: Annotated[list[Path] | None, typer.Option(help="writable host directory")] = None,
    ro: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="host directory below /tmp, /run or /dev/shm to show, read-only",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of everything random in the guest")] = 1,
    stall: Annotated[float, typer.Option(help="real seconds without virtual time")] = 300.0,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the command")] = None,
) -> None:
    """Run COMMAND as root in a guest, in this directory, with the host's files read-only.

    /tmp, /run and /dev/shm are the guest's own: of the host's, it sees there what --ro and --rw
    name, and this directory."""
    guest = GuestSpec(
        argv=tuple(command),
        memory_bytes=_memory_bytes(mem),
        writable=tuple(path.resolve() for path in rw or []),
        readable=tuple(path.resolve() for path in ro or []),
        environment=dict(entry.split("=", 1) for entry in env or []),
        seed=seed,
        time_travel=not no_time_travel,
        stall_timeout_s=stall,
    )
    try:
        kernel = ensure_kernel(lambda line: print(line, file=sys.stderr, flush=True))
        result = run_guest(
            kernel,
            guest,
            lambda line: print(line, flush=True),
            lambda line: print(line, file=sys.stderr, flush=True),
        )
    except VirtualKernelError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(1) from error
    if result.reason != "exited":
        print(*result.console, sep="\n", file=sys.stderr)
        print(f"{result.reason}: {result.message}", file=sys.stderr)
    print(f"virtual {result.virtual_ns / 1e9:.9f} s, wall {result.wall_s:.2f} s", file=sys.stderr)
    raise typer.Exit(1 if result.exit_status is None else result.exit_status)


def _memory_bytes(text: str) -> int:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * scale)
    raise typer.BadParameter(f"{text!r}: give the memory as 4GB or 512MB")


if __name__ == "__main__":
    run_interruptible(lambda: typer.run(main))

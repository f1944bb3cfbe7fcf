"""`groundwire shell`: Mininet's CLI on a fabric."""

from __future__ import annotations

import sys
import tempfile
import threading
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml

from emulator.mininet.cli import PROMPT_MARK, interact, run_commands
from emulator.mininet.session import ShellSource, fabric_of, open_net
from emulator.mininet.topology import load_topo, section_of_topo
from emulator.native_kernel import missing_for_fabric, native_arrangement
from emulator.session import KernelRefused
from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.build import ensure_kernel
from emulator.virtual.ending import GuestResult

_PROMPT = "mininet> "
_GUEST_BYTES_PER_NODE = 4 * 2**20
_GUEST_BASE_BYTES = 2**30


class ShellKernel(StrEnum):
    """`--kernel`."""

    auto = "auto"
    native = "native"
    virtual = "virtual"


class ShellRefused(ValueError):
    """What was asked for does not go together."""


def shell(
    spec: Annotated[
        Path | None, typer.Argument(metavar="SPEC", help="The spec whose fabric to bring up.")
    ] = None,
    topo: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A Mininet topology instead of a spec, as `mn --topo tree,2,2`."
        ),
    ] = None,
    custom: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file of Mininet topologies, as `mn --custom`."),
    ] = None,
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
        ShellKernel,
        typer.Option(help="native needs root; virtual needs nothing; auto takes native if it can."),
    ] = ShellKernel.auto,
) -> int:
    """Mininet's CLI on a fabric: nodes, pingall, link a b down, h0 ping h1, iperf, and the rest.

    On the virtual kernel, `--command` runs in exact virtual time; typing by hand does not, as time
    has to wait for you then. Exit code 1 when a ping was lost or a command failed.
    """
    if (spec is None) == (topo is None and custom is None):
        raise ShellRefused("shell: expected either a SPEC, or --topo (with --custom, or without)")
    if print_fabric:
        if spec is not None:
            raise ShellRefused("shell: --print-fabric is for --topo and --custom; SPEC has one")
        _print_fabric(topo or "minimal", custom)
        return 0
    source = fabric_of(str(spec) if spec else None, topo, str(custom) if custom else None)
    missing = missing_for_fabric(source.fabric)
    if kernel is ShellKernel.native and missing:
        needs = "".join(f"\n  - {text}" for text in missing)
        raise KernelRefused(
            f"the native kernel cannot make this fabric:{needs}\nuse --kernel virtual"
        )
    if kernel is ShellKernel.virtual or missing:
        failed = _virtual(source, _arguments(spec, topo, custom), command or [])
    else:
        failed = _native(source, command or [])
    return 1 if failed else 0


def _print_fabric(topo: str, custom: Path | None) -> None:
    section = section_of_topo(load_topo(topo, str(custom) if custom else None))
    plain = section.model_dump(mode="python", by_alias=True, exclude_unset=True)
    print(yaml.safe_dump({"fabric": plain}, sort_keys=False, default_flow_style=None), end="")


def _native(source: ShellSource, commands: list[str]) -> bool:
    net = open_net(source, native_arrangement)
    try:
        return bool(run_commands(net, commands) if commands else interact(net))
    finally:
        net.stop()


def _arguments(spec: Path | None, topo: str | None, custom: Path | None) -> list[str]:
    """The source again, as arguments of the program in the guest."""
    found = []
    for name, value in (("--spec", spec), ("--topo", topo), ("--custom", custom)):
        if value is not None:
            found += [name, str(value.resolve() if isinstance(value, Path) else value)]
    return found


def _virtual(source: ShellSource, arguments: list[str], commands: list[str]) -> bool:
    image = ensure_kernel(lambda text: print(text, file=sys.stderr, flush=True))
    program = [sys.executable, "-m", "emulator.mininet", *arguments]
    root = Path(__file__).resolve().parents[2]
    memory = _GUEST_BASE_BYTES + _GUEST_BYTES_PER_NODE * len(source.fabric.nodes)
    files = tuple(Path(a).parent for a in arguments if a.startswith("/"))

    def boot(extra: list[str], writable: tuple[Path, ...], exact: bool) -> GuestResult:
        guest = GuestSpec(
            argv=(*program, *extra),
            memory_bytes=memory,
            writable=writable,
            readable=files,
            environment={"PYTHONPATH": str(root), "PYTHONHASHSEED": "0"},
            seed=source.seed,
            time_travel=exact,
        )
        return run_guest(image, guest, _print_line, _print_error)

    if commands:
        return _failed(boot(["--", *commands], (), True))
    with tempfile.TemporaryDirectory(prefix="groundwire-shell-") as directory:
        typed = Path(directory) / "commands"
        typed.write_text("")
        threading.Thread(target=_type_into, args=(typed,), daemon=True).start()
        return _failed(boot(["--follow", str(typed)], (typed.parent,), False))


def _print_line(line: str) -> None:
    if line.strip() == PROMPT_MARK:
        print(_PROMPT, end="", flush=True)
    else:
        print(line, flush=True)


def _print_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _type_into(typed: Path) -> None:
    for line in sys.stdin or ():  # None: closed by who started us
        with typed.open("a") as file:
            file.write(line)
    with typed.open("a") as file:
        file.write("exit\n")


def _failed(result: GuestResult) -> bool:
    if result.reason != "exited":
        tail = "".join(f"\n  {line}" for line in result.console)
        raise RuntimeError(f"the virtual kernel ended ({result.reason}): {result.message}{tail}")
    return result.exit_status != 0

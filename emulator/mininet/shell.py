"""Mininet's CLI on a fabric, in either kernel."""

from __future__ import annotations

import math
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from emulator.mininet.cli import interact, run_commands
from emulator.mininet.session import ShellSource, fabric_of, open_net
from emulator.native.kernel import missing_for_fabric, native_arrangement
from emulator.needed_kernel import needed_variant
from emulator.session import KernelRefused
from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.build import ensure_kernel
from emulator.virtual.ending import GuestResult

_GUEST_BYTES_PER_NODE = 4 * 2**20
_GUEST_BASE_BYTES = 2**30


@dataclass(frozen=True)
class ShellRequest:
    """The fabric that a shell is opened on: a spec file, or a Mininet topology by name, with the
    file that defines it if it is no stock one."""

    spec: Path | None = None
    topo: str | None = None
    custom: Path | None = None

    def source(self) -> ShellSource:
        """The fabric. Raises SpecError, TopoError."""
        custom = str(self.custom) if self.custom else None
        return fabric_of(str(self.spec) if self.spec else None, self.topo, custom)

    def arguments(self) -> list[str]:
        """It again, as arguments of the program in the guest."""
        found = []
        for name, value in (
            ("--spec", self.spec),
            ("--topo", self.topo),
            ("--custom", self.custom),
        ):
            if value is not None:
                found += [name, str(value.resolve() if isinstance(value, Path) else value)]
        return found


@dataclass(frozen=True)
class GuestOptions:
    """The resources of a shell's guest: its memory (None: by the fabric's size), and directories of
    this machine that it can write to."""

    memory_bytes: int | None = None
    writable: tuple[Path, ...] = ()


def run_shell(
    request: ShellRequest,
    kernel: Literal["native", "virtual"] | None,
    commands: Sequence[str],
    on_line: Callable[[str], None],
    on_error: Callable[[str], None],
    guest: GuestOptions | None = None,
) -> bool:
    """Bring the fabric up, run commands on it or let the user type, and take it down.

    `kernel` None takes native where it can make the fabric. `on_line` gets a guest's output and
    `on_error` the lines that are not the shell's. Returns whether a command failed or a ping was
    lost. Raises KernelRefused, SpecError, TopoError, RuntimeError when the guest ends badly.
    """
    source = request.source()
    missing = missing_for_fabric(source.fabric)
    if kernel == "native" and missing:
        needs = "".join(f"\n  - {text}" for text in missing)
        raise KernelRefused(
            f"the native kernel cannot make this fabric:{needs}\nuse --kernel virtual"
        )
    if kernel == "virtual" or missing:
        return _virtual(
            source, request.arguments(), commands, on_line, on_error, guest or GuestOptions()
        )
    return _native(source, list(commands))


def _native(source: ShellSource, commands: list[str]) -> bool:
    net = open_net(source, native_arrangement)
    try:
        return bool(run_commands(net, commands) if commands else interact(net))
    finally:
        net.stop()


def _virtual(
    source: ShellSource,
    arguments: list[str],
    commands: Sequence[str],
    on_line: Callable[[str], None],
    on_error: Callable[[str], None],
    options: GuestOptions,
) -> bool:
    image = ensure_kernel(on_error, needed_variant(source.fabric))
    program = [sys.executable, "-m", "emulator.mininet", *arguments]
    root = Path(__file__).resolve().parents[2]
    expected = _GUEST_BASE_BYTES + _GUEST_BYTES_PER_NODE * len(source.fabric.nodes)
    memory = options.memory_bytes or expected
    files = tuple(Path(a).parent for a in arguments if a.startswith("/"))

    def boot(extra: list[str], writable: tuple[Path, ...], exact: bool) -> GuestResult:
        guest = GuestSpec(
            argv=(*program, *extra),
            memory_bytes=memory,
            writable=(*writable, *options.writable),
            readable=files,
            environment={"PYTHONPATH": str(root), "PYTHONHASHSEED": "0"},
            seed=source.seed,
            time_travel=exact,
        )
        return run_guest(image, guest, on_line, on_error)

    if commands:
        return _failed(boot(["--", *commands], (), True), memory)
    with tempfile.TemporaryDirectory(prefix="groundwire-shell-") as directory:
        typed = Path(directory) / "commands"
        typed.write_text("")
        threading.Thread(target=_type_into, args=(typed,), daemon=True).start()
        return _failed(boot(["--follow", str(typed)], (typed.parent,), False), memory)


def _type_into(typed: Path) -> None:
    for line in sys.stdin or ():  # None: closed by who started us
        with typed.open("a") as file:
            file.write(line)
    with typed.open("a") as file:
        file.write("exit\n")


def _failed(result: GuestResult, memory_bytes: int) -> bool:
    if result.reason != "exited":
        more = math.ceil(2 * memory_bytes / 1e9)
        hint = f".\nGive it more: --memory {more}GB" if result.reason == "out-of-memory" else ""
        tail = "".join(f"\n  {line}" for line in result.console)
        raise RuntimeError(
            f"the virtual kernel ended ({result.reason}): {result.message}{hint}{tail}"
        )
    return result.exit_status != 0

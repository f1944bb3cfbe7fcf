"""Fixtures: the built kernel, one command in one guest, C programs for it; and what a kernel is
built from, in a few lines."""

import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building import source
from emulator.virtual.building.build import ensure_kernel
from emulator.virtual.building.image import KernelImage
from emulator.virtual.building.source import find_source
from emulator.virtual.ending import GuestResult

CLOCK = "int multiplier = 256;\nint other = 1;\n"
PATCH = """\
Why this is needed.

--- a/arch/clock.c
+++ b/arch/clock.c
@@ -1,2 +1,2 @@
-int multiplier = 256;
+int multiplier = 1;
 int other = 1;
"""


@dataclass(frozen=True)
class Ended:
    """The output of a guest's command, and how it ended."""

    lines: list[str]
    errors: list[str]
    result: GuestResult


Guest = Callable[..., Ended]
Compiled = Callable[..., Path]


@pytest.fixture(scope="session")
def kernel() -> KernelImage:
    if find_source() is None:
        pytest.skip("the package linux-source-6.12 is not installed")
    return ensure_kernel(print)


@pytest.fixture(scope="session")
def guest(kernel: KernelImage) -> Guest:
    """`guest("cmd", "arg", ..., memory_bytes=...)` runs a command in a fresh guest."""

    def run(*argv: str | Path, **spec: Any) -> Ended:
        lines: list[str] = []
        errors: list[str] = []
        spec.setdefault("memory_bytes", 512 * 10**6)
        words = tuple(str(word) for word in argv)
        result = run_guest(kernel, GuestSpec(argv=words, **spec), lines.append, errors.append)
        return Ended(lines, errors, result)

    return run


@pytest.fixture
def compiled(tmp_path: Path) -> Compiled:
    """`compiled(source, "-pthread", ...)` makes a program of C source in the test's directory."""

    def make(source: str, *options: str) -> Path:
        program = tmp_path / "program"
        command: list[str | Path] = ["gcc", "-O1", *options, "-x", "c", "-o", program, "-"]
        subprocess.run(command, input=source.encode(), check=True, timeout=120)
        return program

    return make


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Our own files, small: a patch, a configuration, a queue discipline."""
    directory = tmp_path / "kernel"
    (directory / "patches").mkdir(parents=True)
    (directory / "patches" / "0001-clock.patch").write_text(PATCH)
    (directory / "groundwire.config").write_text("CONFIG_NET=y\n")
    (directory / "sch_gwport.c").write_text("/* qdisc */\n")
    monkeypatch.setattr(source, "KERNEL_FILES", directory)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return directory


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel source archive with two files."""
    top = tmp_path / "linux-source-6.12"
    (top / "arch").mkdir(parents=True)
    (top / "arch" / "clock.c").write_text(CLOCK)
    (top / "net" / "sched").mkdir(parents=True)
    (top / "net" / "sched" / "Makefile").write_text("obj-y += sch_fifo.o\n")
    path = tmp_path / "linux-source-6.12.tar.xz"
    with tarfile.open(path, "w:xz") as tar:
        tar.add(top, top.name)
    monkeypatch.setenv(source.SOURCE_VARIABLE, str(path))
    return path

"""Fixtures: the built kernel, one command in one guest, and C programs for it."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.build import KernelImage, ensure_kernel
from emulator.virtual.ending import GuestResult
from emulator.virtual.source import find_source


@dataclass(frozen=True)
class Ended:
    """What a guest's command printed, and how it ended."""

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
        command = ["gcc", "-O1", *options, "-x", "c", "-o", program, "-"]
        subprocess.run(command, input=source.encode(), check=True, timeout=120)
        return program

    return make

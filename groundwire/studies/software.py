"""The software that makes a case: what its directory is named by, beside the spec."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

JobKind = Literal["emulate", "predict"]

_ROOT = Path(__file__).resolve().parents[2]
_DECIDE: dict[JobKind, tuple[str, ...]] = {
    "emulate": (
        "topologies",
        "collectives",
        "workloads",
        "emulator",
        "analysis/runs",
        "analysis/metrics",
        "analysis/predict",
        "simulation",
    ),
    "predict": ("topologies", "collectives", "workloads/models", "analysis/predict", "simulation"),
}
"""The code that decides what comes out of a job."""
_PACKAGES: dict[JobKind, tuple[str, ...]] = {
    "emulate": ("torch", "numpy", "scipy"),
    "predict": ("numpy", "scipy"),
}


@cache
def software(kind: JobKind) -> tuple[tuple[str, str], ...]:
    """(part, version) of what decides a job's outcome: Groundwire by its version and a digest of
    the code, Python, and the packages that compute."""
    python = ".".join(platform.python_version_tuple()[:2])
    parts = [("groundwire", f"{_version('groundwire')} {_digest(_DECIDE[kind])}")]
    parts += [("python", python), *((name, _version(name)) for name in _PACKAGES[kind])]
    return tuple(parts)


class OtherSoftware(RuntimeError):
    """This machine's Groundwire is not the one that planned a job."""


def refuse_other(kind: JobKind, wanted: tuple[tuple[str, str], ...]) -> None:
    """Raises OtherSoftware unless jobs made here are those that were planned."""
    if software(kind) == wanted:
        return
    found, expected = (
        ", ".join(f"{name} {version}" for name, version in parts)
        for parts in (software(kind), wanted)
    )
    raise OtherSoftware(
        f"{platform.node()} has other software than the study: found {found}; expected {expected}"
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _digest(places: tuple[str, ...]) -> str:
    """A digest of all source files below these directories, by their names."""
    found = hashlib.sha256()
    for place in places:
        paths = (p for p in (_ROOT / place).rglob("*") if p.is_file())
        for path in sorted(paths):
            if "__pycache__" in path.parts or path.suffix in (".yaml", ".md", ".pyc"):
                continue
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found.update(f"{path.relative_to(_ROOT)} {content}\n".encode())
    return found.hexdigest()[:16]

"""docs/torch-interfaces.md lists all that is used of torch and is not public, and torch has it."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

from testing.torch_interfaces import LACKED, listed

ROOT = Path(__file__).resolve().parents[2]
_ROOMS = ("groundwire", "emulator", "analysis", "workloads")
_NOT_TORCHS = {"_asdict", "_getframe", "_uname_cache"}  # of named tuples, sys and platform


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@functools.cache
def _trees() -> list[tuple[str, ast.Module]]:
    paths = [path for room in _ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return [(text, ast.parse(text)) for text in (path.read_text() for path in paths)]


def _defined_by_us() -> set[str]:
    names = set()
    for _, tree in _trees():
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                    names.add(node.name)
                case ast.Name(ctx=ast.Store()):
                    names.add(node.id)
                case ast.Attribute(ctx=ast.Store(), value=ast.Name(id="self" | "cls")):
                    names.add(node.attr)
    return names


def used() -> set[str]:
    """Private names that files which know torch import from it or read of others' objects."""
    ours = _defined_by_us()
    found: set[str] = set()
    for text, tree in _trees():
        if "torch" not in text:
            continue
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "torch":
                    full = [f"{module}.{alias.name}" for alias in node.names]
                    found.update(n for n in full if any(map(_is_private, n.split("."))))
                case ast.Attribute(value=ast.Name(id="self" | "cls")):
                    pass
                case ast.Attribute() if _is_private(node.attr) and node.attr not in ours:
                    found.add(node.attr)
    return found - _NOT_TORCHS


def test_all_private_interfaces_of_torch_are_listed() -> None:
    page = listed()
    parts = {part for each in page for part in each.split(".")}
    missing = {
        name for name in used() if name not in parts and not any(p.startswith(name) for p in page)
    }
    assert not missing, "list them in docs/torch-interfaces.md, with the public one to move to"


def test_the_installed_torch_has_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LACKED, *listed()], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_the_page_names_no_interface_that_nobody_uses() -> None:
    text = "\n".join(text for text, _ in _trees())
    assert [each for each in listed() if each.rpartition(".")[2] not in text] == []

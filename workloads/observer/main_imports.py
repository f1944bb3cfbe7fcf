"""The modules that a program's main module imports, for the server that forks ranks (`forks`):
installed packages, which its own statements name. They are imported before a rank is there: what
asks which rank this is, or starts a thread or the GPU, is not to be shared.

It imports nothing but the standard library.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_LAUNCHER = "torchrun"
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_INSTALLED = ("site-packages", "dist-packages")
OF_A_RANK = frozenset(
    ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "PET_NODE_RANK", "WORLD_SIZE",
     "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
)  # fmt: skip

Import = tuple[str, tuple[str, ...]]
"""A module, and the names that are taken from it."""


def imports_of(words: Sequence[str], directory: Path) -> list[Import]:
    """The imports of installed packages of the script or module of a Python's command line, by the
    statements of its own that are always executed. Nothing where that cannot be told."""
    path, _ = _main_file(list(words), directory)
    try:
        statements = ast.parse(path.read_text()).body if path is not None else []
    except (OSError, SyntaxError, ValueError):
        return []
    named: list[Import] = []
    for each in statements:
        if isinstance(each, ast.Import):
            named += [(alias.name, ()) for alias in each.names]
        elif isinstance(each, ast.ImportFrom) and each.level == 0 and each.module:
            named.append((each.module, tuple(alias.name for alias in each.names)))
    return [one for one in named if any(_folders(one[0].partition(".")[0]))]


def arguments_of(words: Sequence[str], directory: Path) -> list[str]:
    """`sys.argv` of the script or module of a Python's command line."""
    path, arguments = _main_file(list(words), directory)
    return [str(path or ""), *arguments]


def import_all(imports: Sequence[Import], arguments: Sequence[str] = ()) -> bool:
    """Import them, as far as that works, with `sys.argv` of these arguments, which modules may take
    for defaults of theirs; whether ranks may share what was imported."""
    own, sys.argv[:] = list(sys.argv), arguments
    try:
        return _import_all(imports)
    finally:
        sys.argv[:] = own


def _import_all(imports: Sequence[Import]) -> bool:
    before, threads = os.environ.__class__, _threads()
    asked: list[str] = []

    class Watched(before):  # type: ignore[misc, valid-type]
        def __getitem__(self, key: str) -> str:
            if key in OF_A_RANK:
                asked.append(key)
            found: str = super().__getitem__(key)
            return found

    os.environ.__class__ = Watched
    try:
        for name, taken in imports:
            builtins.__import__(name, fromlist=taken)
    except Exception:  # what is not there is for the program to find out
        pass
    finally:
        os.environ.__class__ = before
    torch = sys.modules.get("torch")
    began = torch is not None and torch.cuda.is_initialized()
    return not asked and not began and _threads() == threads


def _main_file(words: list[str], directory: Path) -> tuple[Path | None, list[str]]:
    """The file of the main module of `python WORDS`, or of what torchrun starts, and the arguments
    behind it."""
    words = words[1:] if words[:1] == ["-u"] else words
    if words[:1] == ["-m"] and words[1:2] and words[1] not in _LAUNCHER_MODULES:
        return _file_of(words[1]), words[2:]
    if words[:1] != ["-m"] and words and Path(words[0]).name != _LAUNCHER:
        return directory / words[0], words[1:]
    rest = words[2:] if words[:1] == ["-m"] else words[1:]
    for number, word in enumerate(rest):
        if word in ("-m", "--module"):
            module = rest[number + 1 : number + 2]
            return (_file_of(module[0]) if module else None), rest[number + 2 :]
        if word.endswith(".py") and not word.startswith("-"):
            return directory / word, rest[number + 1 :]
    return None, []


def _file_of(module: str) -> Path | None:
    """The file of an installed module, or of a package's main module. Imports nothing."""
    first, *rest = module.split(".")
    for folder in _folders(first):
        place = folder.joinpath(*rest)
        for path in (place / "__main__.py", place.with_suffix(".py")):
            if path.is_file():
                return path
    return None


def _folders(package: str) -> Iterator[Path]:
    """The folders of an installed package's modules; nothing for others."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return
    places = [] if spec is None else spec.submodule_search_locations or [spec.origin or ""]
    for place in map(Path, places):
        if any(part in _INSTALLED for part in place.parts):
            yield place


def _threads() -> int:
    """How many threads there are, but for that of jemalloc, which minds forks (pyarrow has one)."""
    names = [
        Path("/proc/self/task", each, "comm").read_text() for each in os.listdir("/proc/self/task")
    ]
    return sum(not name.startswith("jemalloc_bg_thd") for name in names)

"""The script of a Python's command line, and its imports, as far as its own text tells."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path


def script_of(argv: Sequence[str]) -> str | None:
    """The script of a Python's or torchrun's command line, where one is plainly named."""
    name = Path(argv[0]).name
    if name != "torchrun" and re.fullmatch(r"python(\d(\.\d+)?)?", name) is None:
        return None
    words = iter(argv[1:])
    for word in words:
        if name == "torchrun" and word in ("-m", "--module", "--no-python", "--no_python"):
            return None
        if name != "torchrun" and word in ("-m", "-c", "-"):
            return None
        if name != "torchrun" and word in ("-W", "-X"):
            next(words, None)
        elif not word.startswith("-") and (name != "torchrun" or word.endswith(".py")):
            return word
    return None


def script_importing(package: str, argv: Sequence[str], directory: Path) -> str | None:
    """The script, module or `-c` of a Python's command line, if it plainly imports a package: by a
    statement of its own that is always executed. None otherwise, and where that cannot be told."""
    words = iter(argv[1:])
    for word in words:
        if word == "-m":
            module = next(words, "")
            return module if module.split(".")[0] == package else None
        if word == "-c":
            return word if _imports(package, next(words, "")) else None
        if word in ("-W", "-X"):
            next(words, None)
        elif not word.startswith("-"):
            try:
                return word if _imports(package, Path(directory, word).read_text()) else None
            except (OSError, UnicodeDecodeError):
                return None
    return None


def _imports(package: str, source: str) -> bool:
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError):
        return False
    names = [
        name
        for statement in statements
        for name in (
            [alias.name for alias in statement.names]
            if isinstance(statement, ast.Import)
            else [statement.module or ""]
            if isinstance(statement, ast.ImportFrom) and statement.level == 0
            else []
        )
    ]
    return any(name.split(".")[0] == package for name in names)

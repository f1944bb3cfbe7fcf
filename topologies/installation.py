"""The paths that messages name: files that are there, in a clone as in an installation."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
IN_CLONE = (_ROOT / "setup.sh").is_file()
"""Whether this is a clone, with its Makefile, docs, studies and benchmarks; a wheel has none of
these."""


def in_clone(words: str, otherwise: str) -> str:
    """`words` in a clone, whose files they name, and `otherwise` in an installation."""
    return words if IN_CLONE else otherwise


def page(name: str) -> str:
    """A page of the docs."""
    return in_clone(f"docs/{name}", f"docs/{name} of Groundwire's repository")


def ready_specs() -> str:
    """The directory of ready specs, which a wheel has, too."""
    return in_clone("topologies/", f"{_ROOT / 'topologies'}/")


def command() -> str:
    """The command as its caller can type it again: `groundwire` where the shell finds this one, and
    the path by which it was called where it does not, as in a clone whose environment is not
    active."""
    called = sys.argv[0]
    if Path(called).name != "groundwire":
        return "groundwire"
    found = shutil.which("groundwire")
    return "groundwire" if found and os.path.samefile(found, called) else called

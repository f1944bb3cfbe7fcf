"""Torch's interfaces in docs/torch-interfaces.md, and a program that says what a torch lacks."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "torch-interfaces.md"

LACKED = """
import importlib, sys

def has(interface):
    # What an overload has is on each one, not on their class.
    parts = interface.replace("torch._ops.OpOverload", "torch.ops.aten.add.Tensor").split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        try:
            for part in parts[count:]:
                found = getattr(found, part)
        except (AttributeError, RuntimeError):
            continue
        return True
    return False

import torch, torch.distributed.distributed_c10d, torch._subclasses
print(*(each for each in sys.argv[1:] if not has(each)))
"""
"""Prints those of its arguments that the torch at hand does not have."""


def listed() -> list[str]:
    """The interfaces in the tables of the page."""
    found = re.findall(r"^\| `(torch[\w.]*)` \|", _PAGE.read_text(), re.M)
    assert len(found) > 40 and len(found) == len(set(found))
    return found


def lacking(version: str) -> set[str]:
    """Those that a torch such as 2.6 lacks, as the page says."""
    return set(
        re.findall(rf"^\| {re.escape(version)} \| `(torch[\w.]*)` \|", _PAGE.read_text(), re.M)
    )

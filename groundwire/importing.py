"""Imports without Python's collector of garbage: what they make stays until the process ends, and
looking through it again and again takes an eighth of the time."""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType


def imported(name: str) -> ModuleType:
    """The module of this name, which the collector does not look at, now or later."""
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()

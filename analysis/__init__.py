"""Pure analysis of run directories: measure, predict, compare, calibrate, report.

It needs neither root nor torch, and starts no run. Three names to know: `load_run` (a run directory
as a `Run`), `build_result` (result.json) and `finish_run` (the report).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.runs.run import Run, RunError, load_run

__all__ = ["Run", "RunError", "load_run"]


def __getattr__(name: str) -> Any:
    """Names of `analysis.runs.run`, loaded when asked for: most of this package needs no run."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("analysis.runs.run"), name)

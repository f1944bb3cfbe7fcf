"""Groundwire from Python: what the commands do, as functions that return values.

    import groundwire

    run = groundwire.run("topologies/two-hosts.yaml", {"fabric.link.rate": "25Gbps"})
    run.result["valid"]

docs/api.md has the whole of it. Errors are those of the command line: SpecError, RunError,
KernelRefused, SessionFailed and the like, whose text is what a command would print.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.compare.comparison import Comparison
    from analysis.runs.run import Run, RunError, load_run
    from emulator.progress import Progress
    from emulator.session import KernelRefused, SessionFailed
    from groundwire.comparing import ComparedRun, compare
    from groundwire.designs.design import Design, design
    from groundwire.forecast import Forecast, predict
    from groundwire.pipeline import resolve, run
    from groundwire.studies.study import Study, study
    from groundwire.sweeping import SweepCase, sweep, sweep_at_once
    from topologies.spec.spec import Spec, SpecError, load_spec

_HOMES = {
    "ComparedRun": "groundwire.comparing",
    "Comparison": "analysis.compare.comparison",
    "Design": "groundwire.designs.design",
    "Forecast": "groundwire.forecast",
    "KernelRefused": "emulator.session",
    "Progress": "emulator.progress",
    "Run": "analysis.runs.run",
    "RunError": "analysis.runs.run",
    "SessionFailed": "emulator.session",
    "Spec": "topologies.spec.spec",
    "SpecError": "topologies.spec.spec",
    "Study": "groundwire.studies.study",
    "SweepCase": "groundwire.sweeping",
    "compare": "groundwire.comparing",
    "design": "groundwire.designs.design",
    "load_run": "analysis.runs.run",
    "load_spec": "topologies.spec.spec",
    "predict": "groundwire.forecast",
    "resolve": "groundwire.pipeline",
    "run": "groundwire.pipeline",
    "study": "groundwire.studies.study",
    "sweep": "groundwire.sweeping",
    "sweep_at_once": "groundwire.sweeping",
}

__all__ = [
    "ComparedRun",
    "Comparison",
    "Design",
    "Forecast",
    "KernelRefused",
    "Progress",
    "Run",
    "RunError",
    "SessionFailed",
    "Spec",
    "SpecError",
    "Study",
    "SweepCase",
    "compare",
    "design",
    "load_run",
    "load_spec",
    "predict",
    "resolve",
    "run",
    "study",
    "sweep",
    "sweep_at_once",
]

_ROOMS = ("analysis", "collectives", "emulator", "simulation", "topologies", "workloads")


def _refuse_foreign_rooms() -> None:
    """Raises ImportError when one of our packages is hidden by somebody else's of that name.

    The rooms are packages of their own beside this one, in a clone as in an installation
    (docs/architecture.md says why). A directory or distribution that comes first on `sys.path`
    with the same name would be imported in place of ours.
    """
    ours = Path(__file__).resolve().parents[1]
    for room in _ROOMS:
        found = find_spec(room)
        places = [] if found is None else [*(found.submodule_search_locations or ()), found.origin]
        if not any(place and Path(place).resolve() == ours / room for place in places):
            where = ", ".join(str(place) for place in places) or "nothing"
            raise ImportError(
                f"groundwire needs its own package {room}, {ours / room}; found {where}: something "
                "of that name comes first on sys.path"
            )


_refuse_foreign_rooms()


def __getattr__(name: str) -> Any:
    """Loaded when asked for: a command's `--help` needs none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # What a spec may ask for is known by the rooms that provide it.
    import_module("analysis.predict")
    return getattr(import_module(_HOMES[name]), name)

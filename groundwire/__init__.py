"""Groundwire from Python: what the commands do, as functions that return values.

    import groundwire

    run = groundwire.run("topologies/two-hosts.yaml", {"fabric.link.rate": "25Gbps"})
    run.result["valid"]

It computes nothing itself: it has a spec run, and its run analysed. Three names to know: `run`,
`predict` and `compare`. docs/api.md has the whole of it. Errors are those of the command line:
SpecError, RunError, KernelRefused, SessionFailed and the like, whose text is what a command would
print.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groundwire.rooms import ROOMS

if TYPE_CHECKING:
    from analysis.calibration.observations import CalibrationError
    from analysis.chakra.errors import ChakraError
    from analysis.compare.comparison import Comparison
    from analysis.decode.tcp.pcap import CaptureFormatError
    from analysis.predict.interface import PredictorError
    from analysis.report.data_frames import Frames, frames
    from analysis.report.pictures import Picture, pictures
    from analysis.runs.run import Run, RunError, load_run
    from collectives.schedule.schedule import CollectiveError
    from emulator.output_directory import DirectoryBusy
    from emulator.progress import Progress
    from emulator.ranks.caller import ProgramNotFound
    from emulator.ranks.failures.full_directory import RunDirectoryFull
    from emulator.ranks.launcher import RankFailed
    from emulator.session import KernelRefused, SessionFailed, UnknownKernel
    from emulator.virtual.failure import VirtualKernelError
    from groundwire.comparing import ComparedRun, compare
    from groundwire.designs.design import Design, design
    from groundwire.designs.emulated_point import NotEmulated
    from groundwire.driving import drive, write_network
    from groundwire.forecast import Forecast, flow_times, predict
    from groundwire.pipeline import JobsMissing, resolve, run
    from groundwire.studies.engine import EngineError
    from groundwire.studies.study import Study, study
    from groundwire.sweeping import SweepCase, SweepFailed, sweep, sweep_at_once
    from simulation.driven_engine import DrivenEngine
    from topologies.spec.spec import Spec, SpecError, load_spec
    from workloads.virtual_gpu.building import VirtualGpuError

_HOMES = {
    "CalibrationError": "analysis.calibration.observations",
    "CaptureFormatError": "analysis.decode.tcp.pcap",
    "ChakraError": "analysis.chakra.errors",
    "CollectiveError": "collectives.schedule.schedule",
    "ComparedRun": "groundwire.comparing",
    "Comparison": "analysis.compare.comparison",
    "Design": "groundwire.designs.design",
    "DirectoryBusy": "emulator.output_directory",
    "DrivenEngine": "simulation.driven_engine",
    "EngineError": "groundwire.studies.engine",
    "Forecast": "groundwire.forecast",
    "Frames": "analysis.report.data_frames",
    "JobsMissing": "groundwire.pipeline",
    "KernelRefused": "emulator.session",
    "NotEmulated": "groundwire.designs.emulated_point",
    "Picture": "analysis.report.pictures",
    "PredictorError": "analysis.predict.interface",
    "ProgramNotFound": "emulator.ranks.caller",
    "Progress": "emulator.progress",
    "RankFailed": "emulator.ranks.launcher",
    "Run": "analysis.runs.run",
    "RunDirectoryFull": "emulator.ranks.failures.full_directory",
    "RunError": "analysis.runs.run",
    "SessionFailed": "emulator.session",
    "Spec": "topologies.spec.spec",
    "SpecError": "topologies.spec.spec",
    "Study": "groundwire.studies.study",
    "SweepCase": "groundwire.sweeping",
    "SweepFailed": "groundwire.sweeping",
    "UnknownKernel": "emulator.session",
    "VirtualGpuError": "workloads.virtual_gpu.building",
    "VirtualKernelError": "emulator.virtual.failure",
    "compare": "groundwire.comparing",
    "design": "groundwire.designs.design",
    "drive": "groundwire.driving",
    "flow_times": "groundwire.forecast",
    "frames": "analysis.report.data_frames",
    "load_run": "analysis.runs.run",
    "load_spec": "topologies.spec.spec",
    "pictures": "analysis.report.pictures",
    "predict": "groundwire.forecast",
    "resolve": "groundwire.pipeline",
    "run": "groundwire.pipeline",
    "study": "groundwire.studies.study",
    "sweep": "groundwire.sweeping",
    "sweep_at_once": "groundwire.sweeping",
    "write_network": "groundwire.driving",
}

__all__ = [
    "CalibrationError",
    "CaptureFormatError",
    "ChakraError",
    "CollectiveError",
    "ComparedRun",
    "Comparison",
    "Design",
    "DirectoryBusy",
    "DrivenEngine",
    "EngineError",
    "Forecast",
    "Frames",
    "JobsMissing",
    "KernelRefused",
    "NotEmulated",
    "Picture",
    "PredictorError",
    "ProgramNotFound",
    "Progress",
    "RankFailed",
    "Run",
    "RunDirectoryFull",
    "RunError",
    "SessionFailed",
    "Spec",
    "SpecError",
    "Study",
    "SweepCase",
    "SweepFailed",
    "UnknownKernel",
    "VirtualGpuError",
    "VirtualKernelError",
    "__version__",
    "compare",
    "design",
    "drive",
    "flow_times",
    "frames",
    "load_run",
    "load_spec",
    "pictures",
    "predict",
    "resolve",
    "run",
    "study",
    "sweep",
    "sweep_at_once",
    "write_network",
]


def _refuse_foreign_rooms() -> None:
    """Raises ImportError when one of our packages is hidden by somebody else's of that name.

    The rooms are packages of their own beside this one, in a clone as in an installation
    (docs/rooms.md says why). A directory or distribution that comes first on `sys.path`
    with the same name would be imported in place of ours.
    """
    ours = Path(__file__).resolve().parents[1]
    for room in ROOMS[1:]:
        found = find_spec(room)
        if found is None and (ours / room).is_dir():
            raise ImportError(
                f"groundwire needs its own package {room}, {ours / room}, which this environment "
                "does not know: it is newer; `make setup`, or `pip install -e .`, makes it known"
            )
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
    if name == "__version__":
        return version("groundwire")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The names that there are, also those that are not loaded yet."""
    return sorted({*globals(), *__all__})

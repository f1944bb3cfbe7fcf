"""What a program takes over from whoever starts the run: variables, where the program is, and what
its operations took in a trace."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from topologies.spec.workload_section import CommandWorkload
from workloads.models.operation_times import OperationTimes, read_operation_times

_FILE = "caller.json"
_TIMES_FILE = "operation_times.json"
# What says where programs, libraries and packages are, and how text is written. Others would make
# a run depend on the terminal from which it was started.
_PASSED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
)
_DEFAULTS = {"PATH": os.defpath, "HOME": "/tmp", "LANG": "C.UTF-8"}


class ProgramNotFound(ValueError):
    """A `workload.argv` that begins with no program."""


@dataclass(frozen=True, slots=True)
class Caller:
    """`program` is the file to execute, `environment` what is passed on of the caller's."""

    program: str
    environment: Mapping[str, str]

    @classmethod
    def here(cls, workload: CommandWorkload, preload: Path | None = None) -> Caller:
        """This process, for a workload; `preload` is a library to be loaded into the program.
        Raises ProgramNotFound."""
        passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
        environment = _DEFAULTS | passed
        if preload is not None:
            environment["LD_PRELOAD"] = str(preload)
        path = workload.env.get("PATH", environment["PATH"])
        return cls(_find(workload, path), environment)

    @classmethod
    def read(cls, run_directory: Path) -> Caller:
        """The one that was written. Raises OSError, ValueError."""
        return cls(**json.loads((run_directory / _FILE).read_text()))

    def write(self, run_directory: Path) -> None:
        """For `read`, and for whoever wants to know."""
        (run_directory / _FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")

    def needed(self, workload: CommandWorkload) -> tuple[Path, ...]:
        """Directories that the program reads, as far as its words and variables tell: what a guest
        would hide when they lie in /tmp and the like."""
        program = Path(self.program)
        words = [Path(word) for word in workload.argv[1:] if word.startswith("/")]
        found = {Path(workload.directory), program.parent}
        if program.is_absolute() and (program.parent.parent / "pyvenv.cfg").exists():
            found.add(program.parent.parent)
        found |= {word if word.is_dir() else word.parent for word in words if word.exists()}
        variables = dict(self.environment) | workload.env
        for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"):
            found |= {Path(entry) for entry in variables.get(name, "").split(":") if entry}
        return tuple(sorted(path for path in found if path.is_absolute() and path.is_dir()))


def times_for(workload: CommandWorkload) -> OperationTimes | None:
    """Those that a workload is charged by, None without. Raises OperationTimesError."""
    return None if workload.charge_by is None else read_operation_times(Path(workload.charge_by))


def write_times(times: OperationTimes, run_directory: Path) -> None:
    """Into a run directory, where the kernel at hand finds them. Raises OSError."""
    (run_directory / _TIMES_FILE).write_text(json.dumps(times.to_json()) + "\n")


def read_times(run_directory: Path) -> list[list[Any]]:
    """[name, shapes, nanoseconds] of each. Raises OSError, ValueError."""
    found: list[list[Any]] = json.loads((run_directory / _TIMES_FILE).read_text())
    return found


def _find(workload: CommandWorkload, path: str) -> str:
    """The program's file; relative to the working directory where it is given with a slash."""
    name = workload.argv[0]
    if "/" not in name:
        found = shutil.which(name, path=path)
        if found is None:
            here = Path(workload.directory) / name
            hint = f"; for {here} write ./{name}" if here.exists() else ""
            raise ProgramNotFound(
                f"workload.argv: {name}: no such program in any directory of PATH{hint}"
            )
        return str(Path(found).absolute())
    file = Path(workload.directory) / name
    if not file.is_file():
        raise ProgramNotFound(f"workload.argv: {name}: no such file (looked for {file})")
    if not os.access(file, os.X_OK):
        hint = f": expected python {name}" if name.endswith(".py") else "; chmod +x makes it so"
        raise ProgramNotFound(f"workload.argv: {name}: {file} is no program{hint}")
    return name

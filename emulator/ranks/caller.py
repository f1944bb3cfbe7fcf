"""The things that a program takes over from whoever starts the run: variables, where the program
is, and what its operations took in a trace."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emulator.ranks.script import script_importing, script_of
from topologies.spec.spec import Spec
from topologies.spec.workload_section import CommandWorkload
from workloads.models.operation_times import OperationTimes
from workloads.models.times_file import read_times_of
from workloads.observer.forks import can_fork
from workloads.virtual_gpu.building import Torch, VirtualGpuError, library_for

_FILE = "caller.json"
_TIMES_FILE = "operation_times.json"
_LIBRARY_FILE = "virtual_gpu"
# Variables that say where programs, libraries and packages are, and how text is written. Others
# would make a run depend on the terminal from which it was started.
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
_DIRECTORIES = ("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX")
"""Those that name directories."""
_DEFAULTS = {"PATH": os.defpath, "HOME": "/tmp", "LANG": "C.UTF-8"}
_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables that an environment sets which somebody has activated."""
_OWN_PROGRAMS = str(Path(sys.executable).parent)
"""The directory of the programs of Groundwire's own environment: python, torchrun and the like."""
_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
_LACKS_TORCH = 1
_ANSWERS_WITHIN_S = 30


class ProgramNotFound(ValueError):
    """A `workload.argv` that begins with no program, or with one that cannot run the rest."""


@dataclass(frozen=True, slots=True)
class Caller:
    """`program` is the file to execute, `environment` what is passed on of the caller's. `chosen`
    says so where the program is one of Groundwire's own environment."""

    program: str
    environment: Mapping[str, str]
    chosen: str = ""

    @classmethod
    def here(cls, workload: CommandWorkload, preload: Sequence[Path] = ()) -> Caller:
        """This process, for a workload; `preload` are libraries to be loaded into the program.

        Where no environment is active, Groundwire's own programs are found before others of their
        names: they have torch. Raises ProgramNotFound."""
        passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
        environment = _DEFAULTS | passed
        active = any(name in environment for name in _ACTIVE)
        if not active and _OWN_PROGRAMS not in environment["PATH"].split(":"):
            environment["PATH"] = f"{_OWN_PROGRAMS}:{environment['PATH']}"
        program = _find(workload, workload.env.get("PATH", environment["PATH"]))
        chosen = ""
        named = Path(workload.argv[0]).is_absolute()
        if not active and not named and program == str(Path(_OWN_PROGRAMS) / workload.argv[0]):
            chosen = (
                f"{workload.argv[0]} is {program}, of Groundwire's own environment, "
                "as no other is active"
            )
        _refuse_without_script(workload)
        _refuse_without_torch(workload, program, environment | workload.env)
        if preload:
            environment["LD_PRELOAD"] = ":".join(map(str, preload))
        return cls(program, environment, chosen)

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
        program = Path(_full(self.program, workload))
        words = [Path(word) for word in workload.argv[1:] if word.startswith("/")]
        found = {Path(workload.directory), program.parent}
        if program.is_absolute() and (program.parent.parent / "pyvenv.cfg").exists():
            found.add(program.parent.parent)
        found |= {word if word.is_dir() else word.parent for word in words if word.exists()}
        variables = dict(self.environment) | workload.env
        for name in (
            "PATH",
            "PYTHONPATH",
            "LD_LIBRARY_PATH",
            "VIRTUAL_ENV",
            "CONDA_PREFIX",
            "HOME",
        ):
            found |= {Path(entry) for entry in variables.get(name, "").split(":") if entry}
        return tuple(sorted(path for path in found if path.is_absolute() and path.is_dir()))


def programs_of(spec: Spec, directory: Path) -> list[tuple[CommandWorkload, Path]]:
    """The programs of users that a spec runs, each with the run directory that is its own."""
    if not spec.jobs:
        places = [(spec.workload, directory)]
    else:
        from emulator.job_directories import job_directory

        places = [(job.workload, job_directory(directory, job.name)) for job in spec.jobs]
    return [(each.program, place) for each, place in places if each.program is not None]


def times_for(workload: CommandWorkload) -> OperationTimes | None:
    """Those that a workload is charged by, None without. Raises OperationTimesError."""
    if workload.charge_by is None:
        return None
    return read_times_of(Path(workload.charge_by))


def write_times(times: OperationTimes, run_directory: Path) -> None:
    """Into a run directory, where the kernel at hand finds them. Raises OSError."""
    (run_directory / _TIMES_FILE).write_text(json.dumps(times.typed_json()) + "\n")


def read_times(run_directory: Path) -> list[list[Any]]:
    """[name, shapes, types or "", nanoseconds] of each. Raises OSError, ValueError."""
    found: list[list[Any]] = json.loads((run_directory / _TIMES_FILE).read_text())
    return found


def library_here(
    workload: CommandWorkload, caller: Caller, tell: Callable[[str], None]
) -> Path | None:
    """The directory with the compiled part of virtual GPUs for the torch of a program's Python,
    built where it is absent, which `tell` is told; None for a program without them. Raises
    VirtualGpuError."""
    if workload.gpus_per_host is None:
        return None
    return library_for(Torch.of(_python_of(_full(caller.program, workload))), tell)


def python_line(program: str, workload: CommandWorkload) -> tuple[str, ...] | None:
    """A program's command line as that of a Python, where it plainly imports torch, as a script or
    a module, with no options of the Python; None for others. The Python is named in full: what
    imports torch for all ranks does so elsewhere."""
    program = _full(program, workload)
    is_python = re.fullmatch(r"python(\d(\.\d+)?)?", Path(program).name) is not None
    try:
        python = _python_of(program)
    except VirtualGpuError:
        return None
    line = (
        program if is_python else python,
        *(() if is_python else (program,)),
        *workload.argv[1:],
    )
    launches = workload.per == "host"
    uses_torch = (
        launches
        or workload.gpus_per_host is not None
        or script_importing("torch", line, Path(workload.directory)) is not None
    )
    return line if can_fork(line) and uses_torch else None


def _full(program: str, workload: CommandWorkload) -> str:
    """A program that is given with a slash is one of the working directory."""
    return str(Path(workload.directory) / program)


def _python_of(program: str) -> str:
    """The Python that a program is, or that its first line names. Raises VirtualGpuError."""
    if re.fullmatch(r"python(\d(\.\d+)?)?", Path(program).name):
        return program
    try:
        with open(program, "rb") as file:
            line = file.readline(1000).decode(errors="replace")
    except OSError as error:
        raise VirtualGpuError(f"virtual GPUs: {program}: {error.strerror}") from error
    words = line.removeprefix("#!").split() if line.startswith("#!") else []
    found = next((word for word in words if re.search(r"python[\d.]*$", word)), None)
    if found is None:
        raise VirtualGpuError(
            f"virtual GPUs: {program} is not a Python and names none in its first line; expected "
            "python SCRIPT, torchrun, or another script of Python"
        )
    return found if "/" in found else shutil.which(found) or found


def write_library(library: Path, run_directory: Path) -> None:
    """Into a run directory, where the kernel at hand finds it. Raises OSError."""
    (run_directory / _LIBRARY_FILE).write_text(f"{library}\n")


def read_library(run_directory: Path) -> str:
    """The directory that was written. Raises OSError."""
    return (run_directory / _LIBRARY_FILE).read_text().strip()


def _find(workload: CommandWorkload, path: str) -> str:
    """The program's file; relative to the working directory where it is given with a slash."""
    name = workload.argv[0]
    if "/" not in name:
        found = shutil.which(name, path=path)
        if found is None:
            here = Path(workload.directory) / name
            own = Path(_OWN_PROGRAMS) / name
            hint = f"; Groundwire's own environment has it: write {own}" if own.exists() else ""
            hint = f"; for {here} write ./{name}" if here.exists() else hint
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


def _refuse_without_script(workload: CommandWorkload) -> None:
    """Raises ProgramNotFound where the script of a Python or of torchrun is not there."""
    script = script_of(workload.argv)
    if script is not None and not Path(workload.directory, script).exists():
        raise ProgramNotFound(
            f"workload.argv: {script}: no such file (looked for "
            f"{Path(workload.directory, script)}; programs start in the directory in which the "
            "command is typed)"
        )


def _refuse_without_torch(
    workload: CommandWorkload, program: str, environment: Mapping[str, str]
) -> None:
    """Raises ProgramNotFound for a Python without torch that is to run what imports it."""
    if re.fullmatch(r"python(3(\.\d+)?)?", Path(program).name) is None:
        return
    script = script_importing("torch", workload.argv, Path(workload.directory))
    if script is None:
        return
    beside = str(Path(workload.directory, script).parent)
    search = ":".join(filter(None, (beside, environment.get("PYTHONPATH", ""))))
    try:
        asked = subprocess.run(
            (program, "-c", _HAS_TORCH),
            cwd=workload.directory,
            env={**environment, "PYTHONPATH": search},
            capture_output=True,
            timeout=_ANSWERS_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return  # the run will tell what is wrong with it
    if asked.returncode == _LACKS_TORCH:
        own = Path(_OWN_PROGRAMS) / "python"
        raise ProgramNotFound(
            f"workload.argv: {workload.argv[0]}: {program} has no torch, which {script} imports; "
            f"activate an environment that has it, or write {own}, which is Groundwire's own"
        )

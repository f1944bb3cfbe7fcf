"""The packet engine's program: compiled once for each version of its source, and kept.

`python -m simulation.building` builds it, with the standard library alone: setup.sh does so while
pip installs packages. With `--flags` it prints those of a compiler for a program that includes the
engine's headers.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from simulation.failure import SimulationError
from topologies.cache_folder import NoCacheFolder, cache_folder

ENGINE = Path(__file__).resolve().parent / "engine"
CARRIED = ENGINE / "carried" / "packet-engine"
"""The file into which `make wheel` puts the engine; a clone has no such file."""
_KERNEL = ENGINE.parents[1] / "emulator" / "kernel"
"""The virtual kernel's own source: controllers of RoCE, choices of next hops and fabrics of cells
are compiled from it."""
INCLUDES = (f"-I{ENGINE}", f"-I{_KERNEL}", f"-I{_KERNEL / 'rxe'}")
"""The folders of the engine's headers."""
_COMMAND = ("g++", "-O3", "-std=c++20", "-static", "-fno-math-errno", "-Wall", "-Wextra")

_TUNABLES = "GLIBC_TUNABLES"


def engine_program() -> Path:
    """The program, built when it is absent (about ten seconds). Raises SimulationError where it
    cannot be."""
    return CARRIED if CARRIED.is_file() else build_here()


def engine_environment() -> dict[str, str]:
    """The environment of the program's process: this one's, and that its memory comes in large
    pages where the system has some. Packets and connections of a thousand hosts lie in more small
    pages than a processor keeps the places of."""
    asked = [os.environ[_TUNABLES]] if _TUNABLES in os.environ else []
    return os.environ | {_TUNABLES: ":".join([*asked, "glibc.malloc.hugetlb=1"])}


def build_here() -> Path:
    """As `engine_program`, whatever is carried."""
    program = _cache() / f"packet-engine-{_key()}"
    if program.is_file():
        return program
    if shutil.which("g++") is None:
        raise SimulationError(
            "the packet engine cannot be built without g++; install it with "
            "`sudo apt-get install g++`"
        )
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        with open(program.parent / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.is_file():
                _compile(program)
    except OSError as error:
        raise SimulationError(f"the packet engine cannot be kept: {error}") from error
    return program


def _compile(program: Path) -> None:
    made = program.with_name(f"{program.name}.new")
    command = [*_COMMAND, *INCLUDES, "-o", str(made), str(ENGINE / "engine.cpp")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SimulationError(f"`{shlex.join(command)}` failed:\n{done.stderr[-3000:]}")
    made.rename(program)


def _key() -> str:
    digest = hashlib.sha256(shlex.join(_COMMAND).encode())
    shared = [*(_KERNEL / "rxe").glob("rxe_*.[ch]"), *_KERNEL.glob("gwroute*.[ch]")]
    shared += _KERNEL.glob("gwcells.[ch]")
    shared += [_KERNEL / "gwport_int.h", _KERNEL / "gwport_trim.h"]
    for path in sorted([*ENGINE.glob("*.cpp"), *ENGINE.glob("*.hpp"), *shared]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _cache() -> Path:
    try:
        return cache_folder("engine", "the packet engine")
    except NoCacheFolder as error:
        raise SimulationError(str(error)) from error


def main() -> None:
    """Build the program and print where it is, or print the flags."""
    if sys.argv[1:] == ["--flags"]:
        print(shlex.join(INCLUDES))
        return
    try:
        print(build_here())
    except SimulationError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

"""The stacks of ranks that run: a handler in each of our observed programs
(workloads/observer/stacks.py) writes Python's, and a debugger sees those below."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from emulator.ranks.failures.hang import Doing, Frame
from emulator.ranks.failures.native_stack import native_stack
from workloads.observer import OBSERVER, PLAN_FILE, PLAN_VARIABLE, STACKS
from workloads.observer.stacks import SIGNAL

_ANSWER_S = 0.02
"""So long a rank has to write its stacks, in virtual time, where writing takes none."""
_REAL_ANSWER_S = 1.0
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_OURS = str(OBSERVER)
_BELOW_OURS = threading.__file__
"""The modules in which the observer waits."""
_OF_MPI = (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK")
"""The variables by which OpenMPI and MPICH name a rank."""


def doings(ranks: Path, pids: Mapping[int, int], real_time: bool) -> dict[int, Doing]:
    """The doings of each rank whose log is in the folder `ranks`. `pids` are the processes that
    were started for ranks, by rank; ranks that `mpirun` has started are found."""
    pids = {**pids, **_of_mpi(ranks)}
    pythons = {rank: pid for rank, pid in _pythons(ranks) if _listens(pid)}
    before = {rank: _written(ranks, rank, pid) for rank, pid in pythons.items()}
    for pid in pythons.values():
        with suppress(ProcessLookupError):
            os.kill(pid, SIGNAL)
    if pythons:
        time.sleep(_REAL_ANSWER_S if real_time else _ANSWER_S)
    found = {}
    for rank in sorted({*pids, *pythons}):
        pid = pythons.get(rank, pids.get(rank, 0))
        frames: tuple[Frame, ...] = ()
        if rank in pythons:
            frames = _frames(_file(ranks, rank, pid).read_text(errors="replace")[before[rank] :])
        found[rank] = Doing(frames, native_stack(pid), not _runs(pid))
    return found


def _pythons(ranks: Path) -> Iterator[tuple[int, int]]:
    """Each rank with its first Python, and that one's number."""
    files = [file.name.partition(".") for file in (ranks / STACKS).glob("*.*")]
    numbers = sorted(
        ((int(rank), int(pid)) for rank, _, pid in files if rank.isdigit() and pid.isdigit()),
        reverse=True,
    )
    yield from numbers  # of a rank's several, the first one that was started comes last


def _of_mpi(ranks: Path) -> dict[int, int]:
    """The processes that `mpirun` has started for ranks, by rank: of a rank's several, the first
    one that has MPI's library, or the first one."""
    ours = f"{PLAN_VARIABLE}={ranks / PLAN_FILE}".encode()
    found: dict[int, tuple[bool, int]] = {}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if ours not in variables:
                continue
            named = (each.partition(b"=") for each in variables)
            rank = next((int(value) for name, _, value in named if name in _OF_MPI), None)
            if rank is not None:
                without = "/libmpi" not in Path(f"/proc/{pid}/maps").read_text()
                found[rank] = min(found.get(rank, (True, pid)), (without, pid))
    return {rank: pid for rank, (_, pid) in found.items()}


def _file(ranks: Path, rank: int, pid: int) -> Path:
    return ranks / STACKS / f"{rank}.{pid}"


def _written(ranks: Path, rank: int, pid: int) -> int:
    return len(_file(ranks, rank, pid).read_text(errors="replace"))


def _status(pid: int) -> dict[str, str]:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}


def _runs(pid: int) -> bool:
    return _status(pid).get("State", "Z")[0] not in "ZX"


def _listens(pid: int) -> bool:
    """Whether a process is there and has a handler for the signal."""
    caught = int(_status(pid).get("SigCgt", "0"), 16)
    return bool(caught >> (SIGNAL - 1) & 1)


def _frames(text: str) -> tuple[Frame, ...]:
    """The stack of the thread that got the signal, innermost first, without the observer's calls.
    Python begins that with "Current thread" (Python/traceback.c)."""
    _, _, own = text.rpartition("Current thread")
    own = own.partition("\nThread ")[0]
    found = [Frame(file, int(line), name) for file, line, name in _FRAME.findall(own)]
    frames = [frame for frame in found if not frame.file.startswith(_BELOW_OURS)] or found
    return tuple(frame for frame in frames if _OURS not in frame.file)

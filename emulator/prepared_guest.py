"""A guest that is prepared for experiments and stands still; runs of a sweep get copies of it.

It has booted, and its server of ranks has imported torch: all that comes before a run's spec is
read, which is the same for all of them. Where a copy does not serve, or cannot be had, a run boots
a guest of its own; the results are the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from emulator.guest_entry import BOOT_SEED, IMPORTING, STAGE
from emulator.guest_memory import guest_memory_bytes
from emulator.needed_kernel import needed_variant
from emulator.ranks.caller import Caller, ProgramNotFound
from emulator.ranks.program_jobs import EarlyImport, early_import
from emulator.transports import emulated
from emulator.virtual.building.image import KernelImage
from emulator.virtual.building.variant import KernelVariant
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.host.features import has_seccomp_filters, has_xsave
from emulator.virtual.memory.host_memory import available_memory
from emulator.virtual.standing import standing_guest
from emulator.virtual.starting import GuestSpec
from topologies.fabrics.selectors import select_ports
from topologies.spec.spec import Spec

VARIABLE = "GROUNDWIRE_PREPARED_GUEST"
"""The variable in which processes of a sweep find the JSON of a `PreparedGuest`."""

SOURCE = Path(__file__).resolve().parent.parent
_ENTRY = SOURCE / "emulator" / "guest_entry.py"
# Torch's libraries and what is being imported: 92 with 2 ranks.
_SYSTEM_FILES = 160
_RANK_FILES = 2
_WORTH_RUNS = 3
_RUNS_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class PreparedGuest:
    """The socket of a guest that stands still, and what its copies have."""

    socket: str
    source: str
    kernel: str
    seed: int
    memory_bytes: int
    open_files: int

    imports: str
    """The program's Python that has imported torch, as JSON; empty for ranks of ours."""

    def serves(self, spec: Spec, kernel: KernelImage, guest: GuestSpec) -> bool:
        """Whether `spec` can run in a copy of it in place of `guest`."""
        return (
            guest.prepares
            and spec.virtual.memory_bytes is None  # what is asked for is had
            and self.source == str(SOURCE)  # the Groundwire that it has imported
            and (self.kernel, self.seed) == (kernel.key, guest.seed)
            and self.imports == guest.files.get(IMPORTING, "")
            and guest.memory_bytes <= self.memory_bytes
            and guest.open_files <= self.open_files
        )


def can_be_prepared(spec: Spec, early: EarlyImport | None) -> bool:
    """Whether a run of `spec` does nothing of its own before it reads the spec: any run does the
    same, or any run of the program whose import is `early`. Several jobs and some transports have
    servers of their own; files of algorithms lie where a guest for any run does not look."""
    return (
        not spec.jobs
        and not spec.program_files
        and (early is not None or spec.workload.program is None)
        and not spec.host.preloads
        and emulated(spec).starts_alike
    )


def early_import_of(spec: Spec, caller: Caller) -> EarlyImport | None:
    """The import of torch by a program's Python in a guest that is prepared, where it has one."""
    return early_import(spec, caller, Path(STAGE, "source"), Path(STAGE, "run"))


def experiment_guest(
    directory: Path | None,
    memory_bytes: int,
    open_files: int,
    seed: int,
    readable: tuple[Path, ...] = (),
    early: EarlyImport | None = None,
    *,
    prepares: bool,
) -> GuestSpec:
    """The guest that runs the experiment in a run directory, or that `prepares` for any first,
    or for any of the program whose import is `early`."""
    place = "" if prepares else str(directory)
    return GuestSpec(
        argv=(sys.executable, "-IS", str(_ENTRY), place, str(SOURCE), sys.prefix),
        memory_bytes=memory_bytes,
        open_files=open_files,
        writable=() if directory is None or prepares else (directory,),
        readable=(SOURCE, *readable),
        seed=seed if early is None else BOOT_SEED,
        files={} if early is None else early.files(IMPORTING),
        prepares=prepares,
        tells_of_hangs=True,
        places={} if directory is None else {directory: f"{STAGE}/run"},
    )


def prepared_guest() -> PreparedGuest | None:
    """The guest of the sweep that this process belongs to."""
    found = os.environ.get(VARIABLE)
    return None if found is None else PreparedGuest(**json.loads(found))


def open_files(spec: Spec) -> int:
    """How many files a guest has open at a time: those of each rank, and the captures."""
    captured = {
        port for point in spec.capture.points for port in select_ports(spec.plan.fabric, point)
    }
    return _SYSTEM_FILES + _RANK_FILES * spec.ranks + len(captured)


@contextmanager
def guest_prepared(kernel: KernelImage, specs: Sequence[Spec]) -> Iterator[None]:
    """Prepare a guest for runs of `specs` as long as the context lasts; this process and those that
    it starts find it. Where it would serve too few of them, or memory is short, there is none."""
    with ExitStack() as stack:
        guest = _guest_for(specs)
        if guest is not None:
            with suppress(VirtualKernelError):  # each run says what is in its way
                socket = stack.enter_context(standing_guest(kernel, guest))
                stack.enter_context(_told(kernel, guest, socket))
        yield


def _guest_for(specs: Sequence[Spec]) -> GuestSpec | None:
    """The guest of which most of them can run in copies."""
    if VARIABLE in os.environ or not (has_seccomp_filters() and has_xsave()):
        return None  # user code is traced where these are missing
    sorts: dict[tuple[int, str], list[Spec]] = {}
    programs: dict[tuple[int, str], tuple[EarlyImport, tuple[Path, ...]]] = {}
    for spec in specs:
        if spec.jobs or spec.virtual.memory_bytes is not None or spec.workload.from_files:
            continue  # servers of their own, or sized by files of the run directory
        if needed_variant(spec.plan.fabric) is not KernelVariant.USUAL:
            continue
        early, readable = _program(spec)
        if can_be_prepared(spec, early):
            seed = spec.seed if early is None else BOOT_SEED
            sort = seed, "" if early is None else json.dumps(early.files(IMPORTING))
            sorts.setdefault(sort, []).append(spec)
            if early is not None:
                programs[sort] = early, readable
    if not sorts or max(map(len, sorts.values())) < _WORTH_RUNS:
        return None
    sort = max(sorts, key=lambda each: len(sorts[each]))
    served = sorts[sort]
    most_bytes = max(guest_memory_bytes(spec, Path()) for spec in served)
    if available_memory().size_bytes < (1 + _RUNS_AT_ONCE) * most_bytes:
        return None
    most_files = max(map(open_files, served))
    early, readable = programs.get(sort, (None, ()))
    return experiment_guest(None, most_bytes, most_files, sort[0], readable, early, prepares=True)


def _program(spec: Spec) -> tuple[EarlyImport | None, tuple[Path, ...]]:
    """The import of a spec's program, where it has one, and the directories that it reads."""
    if spec.jobs or spec.workload.program is None:
        return None, ()
    workload = spec.workload.program
    try:
        caller = Caller.here(workload, emulated(spec).prepare(spec, polls=True))
    except (ProgramNotFound, VirtualKernelError):
        return None, ()  # each run says so
    return early_import_of(spec, caller), caller.needed(workload)


def telling(kernel: KernelImage, guest: GuestSpec, socket: Path) -> str:
    """The value of `VARIABLE` for a guest that stands still."""
    found = PreparedGuest(
        str(socket),
        str(SOURCE),
        kernel.key,
        guest.seed,
        guest.memory_bytes,
        guest.open_files,
        guest.files.get(IMPORTING, ""),
    )
    return json.dumps(asdict(found))


@contextmanager
def _told(kernel: KernelImage, guest: GuestSpec, socket: Path) -> Iterator[None]:
    os.environ[VARIABLE] = telling(kernel, guest, socket)
    try:
        yield
    finally:
        del os.environ[VARIABLE]

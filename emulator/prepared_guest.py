"""A guest that is prepared for experiments and stands still; runs of a sweep get copies of it.

It has booted, and its server of ranks has imported torch: all that comes before a run's spec is
read, which is the same for all of them. Where a copy does not serve, or cannot be had, a run boots
a guest of its own; the results are the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from emulator.guest_entry import STAGE
from emulator.guest_memory import guest_memory_bytes
from emulator.transports import emulated
from emulator.virtual.building.image import KernelImage
from emulator.virtual.failure import VirtualKernelError
from emulator.virtual.host.features import has_seccomp_filters, has_xsave
from emulator.virtual.memory.host_memory import available_memory
from emulator.virtual.standing import standing_guest
from emulator.virtual.starting import GuestSpec
from topologies.fabrics.selectors import select_ports
from topologies.spec.spec import Spec
from topologies.spec.workload_section import ChakraWorkload, CommandWorkload

VARIABLE = "GROUNDWIRE_PREPARED_GUEST"
"""Where processes of a sweep find it: JSON of a `PreparedGuest`."""

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
    kernel: str
    seed: int
    memory_bytes: int
    open_files: int

    def serves(self, spec: Spec, kernel: KernelImage, guest: GuestSpec) -> bool:
        """Whether `spec` can run in a copy of it in place of `guest`."""
        return (
            can_be_prepared(spec)
            and spec.virtual.memory_bytes is None  # what is asked for is had
            and (self.kernel, self.seed) == (kernel.key, guest.seed)
            and guest.memory_bytes <= self.memory_bytes
            and guest.open_files <= self.open_files
        )


def can_be_prepared(spec: Spec) -> bool:
    """Whether all that a run of `spec` does before it reads the spec is what any run does. Programs
    of users, several jobs and some transports have servers of their own; files of algorithms lie
    where a guest for any run does not look."""
    return (
        not spec.jobs
        and not spec.program_files
        and not isinstance(spec.workload, CommandWorkload)
        and emulated(spec).starts_alike
    )


def experiment_guest(
    directory: Path | None,
    memory_bytes: int,
    open_files: int,
    seed: int,
    readable: tuple[Path, ...] = (),
    *,
    prepares: bool,
) -> GuestSpec:
    """The guest that runs the experiment in a run directory, or that `prepares` for any first."""
    place = "" if prepares else str(directory)
    return GuestSpec(
        argv=(sys.executable, "-IS", str(_ENTRY), place, str(SOURCE), sys.prefix),
        memory_bytes=memory_bytes,
        open_files=open_files,
        writable=() if directory is None or prepares else (directory,),
        readable=(SOURCE, *readable),
        seed=seed,
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
    fitting = [
        spec
        for spec in specs
        if can_be_prepared(spec)
        and spec.virtual.memory_bytes is None
        and not isinstance(spec.workload, ChakraWorkload)  # sized by files of its run directory
    ]
    seeds = Counter(spec.seed for spec in fitting)
    if not seeds or max(seeds.values()) < _WORTH_RUNS:
        return None
    seed = seeds.most_common(1)[0][0]
    served = [spec for spec in fitting if spec.seed == seed]
    most_bytes = max(guest_memory_bytes(spec, Path()) for spec in served)
    if available_memory().size_bytes < (1 + _RUNS_AT_ONCE) * most_bytes:
        return None
    return experiment_guest(None, most_bytes, max(map(open_files, served)), seed, prepares=True)


@contextmanager
def _told(kernel: KernelImage, guest: GuestSpec, socket: Path) -> Iterator[None]:
    found = PreparedGuest(str(socket), kernel.key, guest.seed, guest.memory_bytes, guest.open_files)
    os.environ[VARIABLE] = json.dumps(asdict(found))
    try:
        yield
    finally:
        del os.environ[VARIABLE]

"""A session: a spec, a kernel to run it in, and the run directory that comes out.

The native kernel runs the experiment here; the virtual one boots a guest that runs the very same
code. The run directory says which it was: a native run may be slowed down (`scale`), and its
verdict has more to judge.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from emulator.cut_off import cut_off_by_faults
from emulator.guest_entry import STAGE, UNTIL
from emulator.guest_memory import guest_memory_bytes
from emulator.host_time.library import charging_environment
from emulator.idle_time import longest_idle_ns
from emulator.job_directories import job_directory
from emulator.native.kernel import can_watch_ports, missing_for, native_arrangement
from emulator.needed_kernel import needed_variant
from emulator.output_directory import claimed, refuse_taken
from emulator.prepared_guest import (
    SOURCE,
    can_be_prepared,
    early_import_of,
    experiment_guest,
    open_files,
    prepared_guest,
)
from emulator.progress import FAILED, STANDS, Progress, Report
from emulator.ranks.caller import (
    Caller,
    library_here,
    programs_of,
    times_for,
    write_library,
    write_times,
)
from emulator.ranks.failures.different_collectives import different_collectives
from emulator.ranks.failures.hang_watch import HANG_FILE
from emulator.ranks.program_jobs import WORK, EarlyImport
from emulator.ranks.working_directory import working_directory
from emulator.transports import emulated
from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.build import ensure_kernel
from emulator.virtual.host.features import has_seccomp_filters, has_xsave
from emulator.virtual.standing import NoCopy, Standing
from emulator.virtual.standstill import with_functions
from topologies.spec.errors import Key, Problem, SpecError, shown, suggestion
from topologies.spec.scaling import scale_spec
from topologies.spec.spec import Spec
from topologies.spec.workload_section import CommandWorkload
from workloads.observer import POSTS, STACKS

if TYPE_CHECKING:
    from emulator.live_notes import LiveNotes

KernelKind = Literal["native", "virtual"]


@dataclass(frozen=True, slots=True)
class Stop:
    """Have a run stand still `at_ns` after its programs have been started; `look` is called then,
    and when it returns the run goes on as if nothing had been."""

    at_ns: int
    look: Callable[[Standing], None]


MOST_RANKS = 1024
"""Specs of more ranks are predicted, not run."""

_CLOCK_EVERY_S = 1.0
_READ_ONLY = (
    "Files that were there before a run are read-only in it. A program can write new files into "
    "its working directory, which is {}, into /tmp, and below HOME, where they stay in the run."
)


class SessionFailed(RuntimeError):
    """The experiment did not come to its end; the message says why, for who typed the command."""


class UnknownKernel(ValueError):
    """A kernel's name that there is not."""


class KernelRefused(RuntimeError):
    """The kernel that was asked for cannot run this spec."""


def run_session(
    spec: Spec,
    kernel: KernelKind | None,
    directory: Path,
    report: Report,
    inputs: Mapping[str, str | bytes] | None = None,
    meanwhile: Callable[[], None] | None = None,
    idle_times_ns: Callable[[Spec], Sequence[float]] | None = None,
    stall_timeout_s: float | None = None,
    stop: Stop | None = None,
    live: bool = False,
) -> None:
    """Run `spec` and leave a run directory (without result.json, which analysis writes).

    `inputs` are further files of the run directory (name -> content) that the workload reads.
    `meanwhile` is called while a guest boots, which has a core of its own; natively it is not.
    `idle_times_ns` tells how long the collectives of a spec take on an idle fabric, by which
    `scale: auto` is chosen natively.
    A guest whose time stands still for `stall_timeout_s` real seconds ends (None: 300).
    With `stop` the run of a program stands still at its time, in the virtual kernel.
    A run that is `live` says in its directory how far it is, for who looks at it meanwhile
    (emulator/live_notes.py).

    `kernel` None chooses: native when we are root and the kernel has what the spec needs, else
    virtual. Raises UnknownKernel, KernelRefused, TooLittleMemory, SessionFailed,
    VirtualKernelError, FileExistsError when `directory` exists and is not empty, or another process
    fills it.
    """
    chosen = choose_kernel(spec, kernel)
    if chosen == "virtual" and spec.virtual.memory_bytes is not None:
        emulated(spec).refuse_memory(spec, spec.virtual.memory_bytes)
    refuse_taken(directory)
    _refuse_bad_filter(spec)
    programs = programs_of(spec, directory)
    preload = emulated(spec).prepare(spec, polls=bool(programs) and chosen == "virtual")
    if chosen == "native":
        preload = (*preload, *emulated(spec).preloaded_natively(spec))
    callers = [
        Caller.here(workload, [*preload, *_of_mpi(spec, workload)]) for workload, _ in programs
    ]
    for chosen_program in dict.fromkeys(caller.chosen for caller in callers if caller.chosen):
        report(Progress("program", chosen_program))
    recorded = [times_for(workload) for workload, _ in programs]
    libraries = [
        library_here(workload, caller, lambda text: report(Progress("gpu", text)))
        for (workload, _), caller in zip(programs, callers, strict=True)
    ]
    with claimed(directory):
        (directory / "spec.yaml").write_text(spec.to_yaml())
        for name, content in (inputs or {}).items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        started = time.monotonic()
        with ExitStack() as stack:
            notes = None
            if live:
                from emulator.live_notes import LiveNotes

                notes = stack.enter_context(LiveNotes(spec, directory, report))
                report = notes.report
            readable = tuple(file.parent for file in spec.program_files)
            for (workload, place), caller, times, library in zip(
                programs, callers, recorded, libraries, strict=True
            ):
                place.mkdir(parents=True, exist_ok=True)
                caller.write(place)
                if times is not None:
                    write_times(times, place)
                if library is not None:
                    write_library(library, place)
                    readable += (library,)
                readable += caller.needed(workload)
                stack.enter_context(working_directory(Path(workload.directory), place / WORK))
            if chosen == "native":
                times_ns = idle_times_ns(spec) if idle_times_ns else ()
                extra = _run_native(spec, directory.resolve(), report, times_ns)
            else:
                early = early_import_of(spec, callers[0]) if callers else None
                extra = _run_virtual(
                    spec,
                    directory.resolve(),
                    report,
                    readable,
                    early,
                    meanwhile,
                    stall_timeout_s,
                    stop,
                    notes,
                )
        _write_environment(directory, chosen, time.monotonic() - started, extra)
        if spec.jobs:
            from emulator.job_directories import complete_job_directories

            complete_job_directories(spec, directory)


def _of_mpi(spec: Spec, workload: CommandWorkload) -> list[Path]:
    """The library by which switches do a program's collectives, where `mpirun` starts its ranks.
    Raises VirtualKernelError: it cannot be compiled."""
    if workload.per != "job" or spec.aggregation is None:
        return []
    from emulator.ranks.mpi.launch import switches_library

    return [switches_library()]


def _refuse_bad_filter(spec: Spec) -> None:
    """Raises SpecError for a filter of the capture that libpcap does not know. Only packets that
    are captured need libpcap."""
    text = spec.capture.filter
    if text is None or not spec.capture.points:
        return
    from emulator.capture import CaptureError
    from emulator.capture.packet_filter import PacketFilter

    try:
        PacketFilter.compiled(text, spec.capture.snaplen_bytes)
    except CaptureError as error:
        key: Key = ("capture", "filter")
        expected = f"expected an expression of pcap-filter(7): {error}"
        raise SpecError(spec.name, (Problem(key, shown(text), expected),)) from error


def choose_kernel(spec: Spec, wanted: KernelKind | None) -> KernelKind:
    """The kernel for a spec. Raises UnknownKernel, and KernelRefused when the one that is asked for
    cannot run it."""
    known = get_args(KernelKind)
    if wanted is not None and wanted not in known:
        raise UnknownKernel(
            f"kernel: found {wanted!r}; {suggestion(str(wanted), list(known))}expected "
            f"{', '.join(known)}, or None, which takes one that can run the spec"
        )
    ranks = spec.ranks
    if ranks > MOST_RANKS:
        raise KernelRefused(
            f"{spec.name}: {ranks:,} ranks; no kernel runs more than {MOST_RANKS:,}. "
            "`groundwire predict` answers for them"
        )
    if spec.compute.device == "real" and wanted != "native":
        if wanted == "virtual":
            raise KernelRefused(
                "compute.device is real, but computing takes no virtual time at all; "
                "name a device (v100, a100, h100), or run it with --kernel native"
            )
        wanted = "native"
    if wanted == "virtual":
        return "virtual"
    missing = missing_for(spec)
    if wanted == "native" and missing:
        needs = "".join(f"\n  - {text}" for text in missing)
        raise KernelRefused(
            f"the native kernel cannot run {spec.name}:{needs}\n"
            "run it with --kernel virtual, which needs neither root nor kernel modules"
        )
    return "virtual" if missing else "native"


def _more_memory(expected: int, guest: GuestSpec) -> str:
    """The memory to try after `guest` ran out of it: as much as it is expected to need, else twice
    as much."""
    more = expected if guest.memory_bytes < expected else 2 * guest.memory_bytes
    return f"{math.ceil(more / 1e9)}GB"


def _run_native(
    spec: Spec, directory: Path, report: Report, times_ns: Sequence[float]
) -> dict[str, object]:
    """Run the spec, slowed down to what this machine keeps up with; returns by how much."""
    # A process that runs a guest needs none of this.
    from emulator.experiment import KernelProfile, run_experiment
    from emulator.native.scaling import choose_scale
    from emulator.network.registry import none_left_by_an_interrupt

    # Real computing cannot be slowed down, so its network is not either.
    choice = choose_scale(spec, times_ns) if spec.compute.device != "real" else None
    factor = choice.factor if choice is not None else 1
    if choice is not None:
        report(Progress("scale", str(choice)))
    slowed = scale_spec(spec, factor)
    profile = KernelProfile(native_arrangement, real_time=True, watches_ports=can_watch_ports())
    with none_left_by_an_interrupt():
        run_experiment(slowed, directory, profile, report)
    return {"scale": factor, "scaling": choice.as_dict() if choice is not None else None}


def _run_virtual(
    spec: Spec,
    directory: Path,
    report: Report,
    readable: tuple[Path, ...],
    early: EarlyImport | None,
    meanwhile: Callable[[], None] | None,
    stall_timeout_s: float | None,
    stop: Stop | None,
    notes: LiveNotes | None,
) -> dict[str, object]:
    """Run the spec in a guest, which reads these directories besides, and has torch imported by
    `early` before it reads the spec; returns what is known of that afterwards. `notes` get the
    guest's ports."""
    variant = needed_variant(spec.plan.fabric)
    kernel = ensure_kernel(lambda text: report(Progress("kernel", text)), variant)
    lines: list[str] = []
    failure: str | None = None
    processes: dict[str, str] = {}

    def on_line(line: str) -> None:
        nonlocal failure
        progress = Progress.decode(line)
        if progress is None:
            lines.append(line)
        elif progress.stage == FAILED:
            failure = progress.detail
        elif progress.stage == STANDS:
            stood.append(progress)
        else:
            processes.update(progress.processes or {})
            report(progress)

    expected = guest_memory_bytes(spec, directory)
    guest = experiment_guest(
        directory,
        spec.virtual.memory_bytes or expected,
        open_files(spec),
        spec.seed,
        readable,
        early,
        prepares=can_be_prepared(spec, early),
    )
    charged = charging_environment(spec.host)
    guest = replace(guest, environment={**guest.environment, **charged})
    idle_s = longest_idle_ns(spec, directory) / 1e9
    guest = replace(guest, deadlock_timeout_s=guest.deadlock_timeout_s + idle_s)
    if stall_timeout_s is not None:
        guest = replace(guest, stall_timeout_s=stall_timeout_s)
    if stop is not None:
        guest = replace(guest, stands_at_ns=stop.at_ns, until_file=UNTIL)
    prepared = prepared_guest() if stop is None else None
    stood: list[Progress] = []
    lacks = "" if has_xsave() else " (on a processor without XSAVE: at half the speed)"
    if not has_seccomp_filters():
        lacks = " (without seccomp filters: at half the speed)"
    report(Progress("boot", f"booting the virtual kernel{lacks}"))
    told_at = time.monotonic()

    def on_time(clock_ns: int, sent_bytes: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _CLOCK_EVERY_S:
            told_at = time.monotonic()
            report(Progress("clock", clock_ns=clock_ns, sent_bytes=sent_bytes))

    def on_standstill(who: str) -> None:
        who = _with_ranks(who, processes)
        report(Progress("standstill", f"virtual time stands still: {who}"))

    def on_process(pid: int) -> None:
        if notes is not None:
            notes.watch(pid, kernel.symbols)

    run = partial(
        run_guest,
        kernel,
        on_line=on_line,
        on_time=on_time,
        on_start=meanwhile,
        on_standstill=on_standstill,
        stands=lambda: bool(stood),
        on_stand=lambda standing: stop.look(standing) if stop is not None else None,
        on_process=on_process,
    )
    result = None
    if prepared is not None and prepared.serves(spec, kernel, guest):
        copy = replace(
            guest,
            memory_bytes=prepared.memory_bytes,
            copy_of=Path(prepared.socket),
        )
        with suppress(NoCopy):
            result = run(guest=copy)
    if result is None:
        result = run(guest=guest)
    cut_off, hangs = cut_off_by_faults(spec), _name_places(directory)
    if result.reason == "deadlock" and cut_off is not None:
        _remove_notes(spec, directory)
        raise SessionFailed(f"{cut_off} ({result.message.splitlines()[0].removesuffix(':')})")
    if result.reason != "exited":
        said = f"the virtual kernel ended ({result.reason}): {result.message}"
        said = _with_ranks(said, processes)
        said += "".join(f"\n{hang['said']}" for hang in hangs if hang["said"])
        if not hangs:
            for _, own in programs_of(spec, directory):
                said += different_collectives(own / "ranks")
        _remove_notes(spec, directory)
        if result.reason == "out-of-memory":
            said += f".\nGive it more: --set virtual.memory={_more_memory(expected, guest)}"
        raise SessionFailed(said + "".join(f"\n  {line}" for line in result.console[-12:]))
    if result.exit_status != 0:
        said = "\n".join(lines[-20:]) if failure is None else failure
        said = with_functions(_outside(said, directory))
        programs = programs_of(spec, directory)
        if cut_off is not None:
            said += f"\n{cut_off}"
        if programs and os.strerror(errno.EROFS) in said:
            said += f"\n{_READ_ONLY.format(programs[0][1] / WORK)}"
        raise SessionFailed(f"the experiment failed in the virtual kernel: {said}".strip())
    return {"scale": 1, "stops": dict(result.stops)}


def _remove_notes(spec: Spec, directory: Path) -> None:
    """Remove what ranks have noted of their calls, which a guest that ended early has left."""
    for job in {"", *spec.ranks_by_job}:
        for folder in (POSTS, STACKS):
            ranks = job_directory(directory, job) / "ranks"
            shutil.rmtree(ranks / folder, ignore_errors=True)


def hangs_of(directory: Path) -> list[dict[str, Any]]:
    """The jobs of a run that hangs, as `hang.json` of its directory has it; empty
    where nothing is."""
    try:
        found: list[dict[str, Any]] = json.loads((directory / HANG_FILE).read_text())
    except (OSError, ValueError):
        return []
    return found


def _name_places(directory: Path) -> list[dict[str, Any]]:
    """Have `hang.json` name functions and files as they are outside of the guest; what it says."""
    try:
        text = with_functions((directory / HANG_FILE).read_text())
    except OSError:
        return []
    (directory / HANG_FILE).write_text(_outside(text, directory))
    return hangs_of(directory)


def _outside(text: str, directory: Path) -> str:
    """A text from the guest with files' names as they are outside of it."""
    for place, path in ((f"{STAGE}/run", directory), (f"{STAGE}/source", SOURCE)):
        text = text.replace(place, str(path))
    return text


def _with_ranks(text: str, processes: Mapping[str, str]) -> str:
    """A text about processes, with their owners."""
    return re.sub(r"\(pid (\d+)\)", lambda found: _named(found, processes), text)


def _named(found: re.Match[str], processes: Mapping[str, str]) -> str:
    """The number of a process, with its owner."""
    whose = processes.get(found[1])
    return found[0] if whose is None else f"({whose}, pid {found[1]})"


def _write_environment(
    directory: Path, kernel: KernelKind, wall_s: float, extra: Mapping[str, object]
) -> None:
    measured = directory / "measured.json"
    environment = {"kernel": kernel, "wall_s": round(wall_s, 3), **extra}
    environment |= json.loads(measured.read_text())
    measured.unlink()
    (directory / "environment.json").write_text(json.dumps(environment, indent=1) + "\n")
    for pattern in ("*.log", "*.err", "*.out"):
        for log in directory.glob(f"**/ranks/{pattern}"):
            if log.stat().st_size == 0:
                log.unlink()

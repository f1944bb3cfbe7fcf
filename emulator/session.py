"""A session: a spec, a kernel to run it in, and the run directory that comes out.

The native kernel runs the experiment here; the virtual one boots a guest that runs the very same
code. Nothing beyond this file knows which of the two it was.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from emulator.experiment import Kernel, run_experiment
from emulator.guest_entry import STAGE
from emulator.guest_experiment import FAILED
from emulator.guest_memory import guest_memory_bytes
from emulator.kernel_parts import merge_parts
from emulator.native_kernel import missing_for, native_arrangement
from emulator.progress import Progress, Report
from emulator.scaling import choose_scale
from emulator.virtual.boot import GuestResult, GuestSpec, run_guests
from emulator.virtual.build import ensure_kernel
from emulator.virtual.seccomp import has_seccomp_filters
from topologies.build import build_fabric
from topologies.division import divide
from topologies.placement import place
from topologies.scaling import scale_spec
from topologies.spec import Spec

KernelKind = Literal["native", "virtual"]
_CLOCK_EVERY_S = 1.0


class SessionFailed(RuntimeError):
    """The experiment did not come to its end; the message says why, for who typed the command."""


class KernelRefused(RuntimeError):
    """The kernel that was asked for cannot run this spec."""


def run_session(
    spec: Spec,
    kernel: KernelKind | None,
    directory: Path,
    report: Report,
    inputs: Mapping[str, str] | None = None,
) -> None:
    """Run `spec` and leave a run directory (without result.json, which analysis writes).

    `inputs` are further files of the run directory (name -> content) that the workload reads.

    `kernel` None chooses: native when we are root and the kernel has what the spec needs, else
    virtual. Raises KernelRefused, SessionFailed, VirtualKernelError, FileExistsError when
    `directory` exists and is not empty.
    """
    chosen = choose_kernel(spec, kernel)
    if directory.exists() and any(directory.iterdir()):
        raise FileExistsError(f"{directory} exists already and is not empty; choose another --out")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "spec.yaml").write_text(spec.to_yaml())
    for name, content in (inputs or {}).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    started = time.monotonic()
    if chosen == "native":
        extra = _run_native(spec, directory, report)
    else:
        extra = _run_virtual(spec, directory.resolve(), report)
    _write_environment(directory, chosen, time.monotonic() - started, extra)


def choose_kernel(spec: Spec, wanted: KernelKind | None) -> KernelKind:
    """The kernel for a spec. Raises KernelRefused when the one that was asked for cannot run it."""
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
    """What to try after `guest` ran out of memory: what it is expected to need, else twice as
    much."""
    more = expected if guest.memory_bytes < expected else 2 * guest.memory_bytes
    return f"{math.ceil(more / 1e9)}GB"


def _run_native(spec: Spec, directory: Path, report: Report) -> dict[str, object]:
    """Run the spec, slowed down to what this machine keeps up with; returns by how much."""
    # What really computes cannot be slowed down, so its network is not either.
    choice = choose_scale(spec) if spec.compute.device != "real" else None
    factor = choice.factor if choice is not None else 1
    if choice is not None:
        report(Progress("scale", str(choice)))
    slowed = scale_spec(spec, factor)
    run_experiment(slowed, directory, Kernel(native_arrangement, real_time=True), report)
    return {"scale": factor, "scaling": choice.as_dict() if choice is not None else None}


def _run_virtual(spec: Spec, directory: Path, report: Report) -> dict[str, object]:
    """Run the spec in a guest, or in several; returns what is known of that afterwards."""
    kernel = ensure_kernel(lambda text: report(Progress("kernel", text)))
    lines: list[list[str]] = [[] for _ in range(spec.virtual.kernels)]
    failures: dict[int, Progress] = {}

    def on_line(guest: int, line: str) -> None:
        progress = Progress.decode(line)
        if progress is None:
            lines[guest].append(line)
        elif progress.stage == FAILED:
            failures[guest] = progress
        else:
            report(progress)

    fabric = build_fabric(spec.fabric)
    hosts = place(spec.placement, fabric, spec.workload.ranks, spec.seed)
    division = divide(fabric, spec.virtual.kernels, hosts)
    expected = [
        guest_memory_bytes(
            spec, directory, [r for r, host in enumerate(hosts) if division.kernel_of[host] == n]
        )
        for n in range(division.kernels)
    ]
    source = Path(__file__).resolve().parent.parent
    entry = source / "emulator" / "guest_entry.py"
    guests = [
        GuestSpec(
            argv=(sys.executable, "-IS", str(entry), str(directory), str(source), sys.prefix),
            memory_bytes=spec.virtual.memory_bytes or needed_bytes,
            writable=(directory,),
            readable=(source,),
            seed=spec.seed,
        )
        for needed_bytes in expected
    ]
    what = "the virtual kernel" if len(guests) == 1 else f"{len(guests)} virtual kernels"
    by_ptrace = "" if has_seccomp_filters() else " (without seccomp filters: at half the speed)"
    report(Progress("boot", f"booting {what}{by_ptrace}"))
    told_at = time.monotonic()

    def on_time(clock_ns: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _CLOCK_EVERY_S:
            told_at = time.monotonic()
            report(Progress("clock", clock_ns=clock_ns))

    results = run_guests(kernel, guests, division.lookahead_ns, on_line, on_time)
    failed = _first_failure(results, failures)
    if failed is not None:
        said = failures[failed].detail if failed in failures else "\n".join(lines[failed][-20:])
        for inside, path in ((f"{STAGE}/run", directory), (f"{STAGE}/source", source)):
            said = said.replace(inside, str(path))
        which = "the virtual kernel"
        if len(guests) > 1:
            which = f"virtual kernel {failed + 1} of {len(guests)}"
        more = _more_memory(expected[failed], guests[failed])
        raise SessionFailed(_failure(results[failed], which, said, more))
    stops = {name: sum(r.stops[name] for r in results) for name in results[0].stops}
    if len(guests) == 1:
        return {"scale": 1, "stops": stops}
    merge_parts(directory, fabric, division, spec.capture.points)
    return {"scale": 1, "kernels": len(guests), "stops": stops}


def _first_failure(results: Sequence[GuestResult], failures: Mapping[int, Progress]) -> int | None:
    """The guest that failed first, None when none did. `failures` is why experiments did, by guest.

    A kernel that breaks down has broken off what the others were doing, be it that they noticed or
    not. Of experiments, the first in virtual time counts: ranks whose peers have gone fail, too,
    and who of them ends before the others are stopped is chance.
    """

    def order(guest: int) -> tuple[int, float]:
        failure = failures.get(guest)
        match results[guest].reason:
            case "exited" | "stopped" if failure is not None and failure.clock_ns is not None:
                return 1, failure.clock_ns
            case "exited":
                return 2, 0
            case "deadlock":
                return 3, 0
            case "stopped":
                return 4, 0
        return 0, 0

    return min((n for n, result in enumerate(results) if result.failed), key=order, default=None)


def _failure(result: GuestResult, which: str, said: str, more_memory: str) -> str:
    """Why a guest (`which` kernel) has failed; `said` is what its experiment said of that."""
    if result.reason in ("exited", "stopped"):
        return f"the experiment failed in the virtual kernel: {said}".strip()
    told = f"{which} ended ({result.reason}): {result.message}"
    if result.reason == "out-of-memory":
        told += f".\nGive it more: --set virtual.memory={more_memory}"
    return told + "".join(f"\n  {line}" for line in result.console[-12:])


def _write_environment(
    directory: Path, kernel: KernelKind, wall_s: float, extra: Mapping[str, object]
) -> None:
    measured = directory / "measured.json"
    environment = {"kernel": kernel, "wall_s": round(wall_s, 3), **extra}
    environment |= json.loads(measured.read_text())
    measured.unlink()
    (directory / "environment.json").write_text(json.dumps(environment, indent=1) + "\n")
    for log in (directory / "ranks").glob("*.log"):
        if log.stat().st_size == 0:
            log.unlink()

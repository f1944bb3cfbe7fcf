"""Makes the runs of a calibration suite, one after the other, those that are there left out."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from analysis.calibration.observations import CalibrationError
from analysis.calibration.suite import estimated_wall_s
from groundwire.commands.run import KernelChoice, run_showing
from topologies.spec.spec import Spec


def make_runs(
    specs: Sequence[Spec], directory: Path, kernel: KernelChoice, console: Console
) -> list[Path]:
    """Run directories of all specs, below `directory`; a finished run of the same spec is kept.

    A run that was cut short, or was of another spec of that name, is made again. Raises
    CalibrationError when something that is no run is in the way, and whatever a run raises.
    """
    places = [directory / spec.name for spec in specs]
    left = [
        (spec, place)
        for spec, place in zip(specs, places, strict=True)
        if not _finished(spec, place)
    ]
    if not left:
        console.print(f"all {len(specs)} runs are there already", highlight=False)
        return places
    wanted = {spec.name: estimated_wall_s(spec) for spec, _ in left}
    kept = f", {len(specs) - len(left)} are there already" if len(left) < len(specs) else ""
    console.print(
        f"{len(left)} runs to make{kept}: about {_minutes(sum(wanted.values()))} on an idle "
        "machine; interrupted, the same command goes on where it was",
        highlight=False,
    )
    pace, done_s, took_s = 1.0, 0.0, 0.0
    for number, (spec, place) in enumerate(left, start=1):
        remaining = sum(wanted[later.name] for later, _ in left[number - 1 :])
        console.print(
            f"[bold]run {number} of {len(left)}[/]: {spec.name}, "
            f"about {_minutes(wanted[spec.name] * pace)}; all that is left: "
            f"{_minutes(remaining * pace)}",
            highlight=False,
        )
        _clear(place)
        started = time.monotonic()
        try:
            run_showing(spec, kernel, place, console)
        except KeyboardInterrupt:
            made = len(specs) - len(left) + number - 1
            console.print(
                f"interrupted: {made} of {len(specs)} runs are made; the same command goes on "
                f"with {spec.name}",
                highlight=False,
            )
            raise
        # The machine may be slower than the estimate's, or busy.
        done_s += wanted[spec.name]
        took_s += time.monotonic() - started
        pace = took_s / done_s
    return places


def _finished(spec: Spec, place: Path) -> bool:
    if not (place / "result.json").exists():
        return False
    return (place / "spec.yaml").read_text() == spec.to_yaml()


def _clear(place: Path) -> None:
    if not place.exists() or not any(place.iterdir()):
        return
    if not (place / "spec.yaml").exists():
        raise CalibrationError(
            f"{place}: found files but no run directory, expected an empty directory or a run's"
        )
    shutil.rmtree(place)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

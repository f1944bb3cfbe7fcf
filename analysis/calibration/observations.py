"""Observations of a calibration: collectives that were measured, with where they ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.predict.interface import Setting
from analysis.predict.run_predictions import call_of
from analysis.predict.setting import setting_of
from analysis.results.verdict import verdict_of
from analysis.runs.collectives import collectives_of
from analysis.runs.run import Run
from collectives.call import CollectiveCall, CollectiveError


class CalibrationError(ValueError):
    """Runs that cannot be calibrated with, or a calibration file that is damaged."""


@dataclass(frozen=True)
class Observation:
    """One measured collective. `fabric` is the kind of its run's fabric, `run` the run's name."""

    run: str
    fabric: str
    setting: Setting
    call: CollectiveCall
    iteration: int
    measured_ns: int


@dataclass(frozen=True)
class Split:
    """Observations to fit and others, never used in the fit, to judge it by; and by what rule."""

    train: tuple[Observation, ...]
    held_out: tuple[Observation, ...]
    rule: str


def observations_of(run: Run) -> tuple[Observation, ...]:
    """Every collective of a valid run. Raises CalibrationError for an invalid run, RunError."""
    verdict = verdict_of(run)
    if not verdict.valid:
        reasons = "; ".join(verdict.reasons)
        raise CalibrationError(f"{run.directory}: the run is not valid, so nothing fits: {reasons}")
    setting = setting_of(run)
    found = []
    for collective in collectives_of(run):
        if collective.schedule.observed:
            continue  # parameters are those of Gloo's messages
        try:
            call = call_of(collective)
        except CollectiveError:
            continue
        if collective.duration_ns > 0 and call.world > 1:
            found.append(
                Observation(
                    run.spec.name,
                    run.fabric.kind,
                    setting,
                    call,
                    collective.iteration,
                    collective.duration_ns // run.environment.scale,
                )
            )
    return tuple(found)


def split_by_size(observations: Sequence[Observation]) -> Split:
    """Every other size of each kind is held out, the smallest is trained on.

    Raises CalibrationError when that leaves nothing to fit or nothing to hold out.
    """
    train, held_out = _by_sizes(observations)
    return _checked(Split(tuple(train), tuple(held_out), "every other size of each kind"))


def split_by_fabric_and_size(
    observations: Sequence[Observation], train_fabrics: Iterable[str]
) -> Split:
    """Trains on every other size of the named fabrics only; all the rest is held out.

    Raises CalibrationError when that leaves nothing to fit or nothing to hold out.
    """
    chosen = frozenset(train_fabrics)
    train, held_out = _by_sizes(observations)
    kept = tuple(o for o in train if o.fabric in chosen)
    rest = tuple(o for o in train if o.fabric not in chosen) + tuple(held_out)
    rule = f"every other size on {', '.join(sorted(chosen))}"
    return _checked(Split(kept, rest, rule))


def split_by_run(observations: Sequence[Observation], held_out: Sequence[Observation]) -> Split:
    """Whole runs are held out. Raises CalibrationError when either side is empty."""
    return _checked(Split(tuple(observations), tuple(held_out), "whole runs"))


def _by_sizes(
    observations: Sequence[Observation],
) -> tuple[list[Observation], list[Observation]]:
    sizes: dict[str, list[int]] = {}
    for observation in observations:
        sizes.setdefault(observation.call.kind, []).append(observation.call.size_bytes)
    chosen = {kind: set(sorted(set(of_kind))[::2]) for kind, of_kind in sizes.items()}
    train: list[Observation] = []
    held_out: list[Observation] = []
    for observation in observations:
        trained = observation.call.size_bytes in chosen[observation.call.kind]
        (train if trained else held_out).append(observation)
    return train, held_out


def _checked(split: Split) -> Split:
    if not split.train:
        raise CalibrationError(f"no collectives to fit (rule: {split.rule})")
    if not split.held_out:
        raise CalibrationError(
            f"no collectives are left to hold out (rule: {split.rule}); give runs with at least "
            "two sizes of a kind, or whole runs with --hold-out"
        )
    return split

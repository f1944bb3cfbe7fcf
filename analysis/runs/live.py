"""`live/` of a run directory: how far a run is that goes on (docs/formats.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from analysis.runs.records import Record
from analysis.runs.run import RunError, first_mistake, unreadable
from analysis.runs.samples.ports import PortSeries, series_of
from topologies.spec.spec import Spec, load_spec


class LiveCall(Record):
    """An operation of a rank. `posted_ns` is when it was posted, `at_ns` when it came into its
    state, on the clock of the logs."""

    group: str
    number: int
    kind: str
    size_bytes: int
    state: str
    posted_ns: int
    at_ns: int


class LiveRank(Record):
    """A rank: how many operations it has posted, how many of these are over, and the last ones."""

    job: str
    rank: int
    posted: int
    over: int
    calls: list[LiveCall]


class LiveState(Record):
    """The last progress of a run."""

    stage: str
    detail: str
    iteration: int | None
    iterations: int | None
    clock_ns: int | None
    sent_bytes: int | None
    wall_s: float


_RANKS = TypeAdapter(list[LiveRank])


@dataclass(frozen=True)
class LiveRun:
    """A run that goes on. `ranks` are none where their calls are not noted: of programs, and where
    ranks are threads of one process."""

    spec: Spec
    state: LiveState
    ranks: tuple[LiveRank, ...]
    series: tuple[PortSeries, ...]


def load_live_run(directory: Path) -> LiveRun | None:
    """A run that goes on, as far as it is; None where there is none, or not yet, or no more.

    Raises RunError for files that are not those of such a run, and SpecError for its spec.
    """
    folder = directory / "live"
    path = folder / "state.json"
    try:
        state = LiveState.model_validate_json(path.read_text())
        path = folder / "calls.json"
        ranks = _RANKS.validate_json(path.read_text()) if path.exists() else []
        series = series_of(folder / "ports.jsonl")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    except ValidationError as error:
        raise RunError(f"{path}: {first_mistake(error)}") from None
    return LiveRun(load_spec(directory / "spec.yaml"), state, tuple(ranks), series)

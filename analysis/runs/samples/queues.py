"""queues.jsonl: the backlog of sampled ports over time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic asks for it below Python 3.12

from analysis.runs.run import Run, RunError, first_mistake, unreadable


class QueueSample(TypedDict):
    """One line: from `time_ns` (the clock of the logs) on, the port held `backlog_bytes`, and
    `marks` packets had been marked since it was made.

    A dictionary, because a run has hundreds of thousands of them.
    """

    __pydantic_config__ = ConfigDict(extra="ignore", strict=True)  # type: ignore[misc]

    port: str
    time_ns: int
    backlog_bytes: Annotated[int, Field(ge=0)]
    marks: NotRequired[int | None]


_SAMPLE = TypeAdapter(QueueSample)
_SAMPLES = TypeAdapter(list[QueueSample])


@dataclass(frozen=True)
class QueueSeries:
    """Samples of one port in order of time; a value holds until the next one."""

    port: str
    times_ns: tuple[int, ...]
    backlog_bytes: tuple[int, ...]
    marks: tuple[int, ...] | None

    @property
    def max_backlog_bytes(self) -> int:
        return max(self.backlog_bytes)

    @property
    def marked(self) -> int:
        """Packets marked in all."""
        return self.marks[-1] if self.marks else 0


def queue_series(run: Run) -> tuple[QueueSeries, ...]:
    """The series of every sampled port, by name; none when the run sampled nothing.

    Raises RunError for a line that is no sample.
    """
    path = run.directory / "queues.jsonl"
    if not path.exists():
        return ()
    lines = _lines(path)
    try:
        found = _SAMPLES.validate_json(f"[{','.join(lines)}]")
    except ValidationError:
        found = _parse_line_by_line(path, lines)
    samples: dict[str, list[QueueSample]] = {}
    for sample in found:
        samples.setdefault(sample["port"], []).append(sample)
    return tuple(_series(port, mine) for port, mine in sorted(samples.items()))


def _parse_line_by_line(path: Path, lines: list[str]) -> list[QueueSample]:
    """The same, slower, with the number of a line that is wrong. Raises RunError."""
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_SAMPLE.validate_json(line))
        except ValidationError as error:
            raise RunError(f"{path}: line {number}: {first_mistake(error)}") from None
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def _series(port: str, samples: list[QueueSample]) -> QueueSeries:
    samples.sort(key=lambda sample: sample["time_ns"])
    marks = [sample.get("marks") for sample in samples]
    return QueueSeries(
        port,
        tuple(sample["time_ns"] for sample in samples),
        tuple(sample["backlog_bytes"] for sample in samples),
        None if any(m is None for m in marks) else tuple(m for m in marks if m is not None),
    )

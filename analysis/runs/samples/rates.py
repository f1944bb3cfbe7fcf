"""rates.jsonl: the rates of queue pairs over time, as the kernel kept them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NotRequired

from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic asks for it below Python 3.12

from analysis.runs.run import Run, RunError, first_mistake, unreadable


class _RateSample(TypedDict):
    """One line, a dictionary as of queue samples: there may be hundreds of thousands."""

    __pydantic_config__ = ConfigDict(extra="ignore", strict=True)  # type: ignore[misc]

    host: str
    port: NotRequired[str]
    qpn: int
    time_ns: int
    rate_bps: int


_SAMPLE = TypeAdapter(_RateSample)


@dataclass(frozen=True)
class RateSeries:
    """The rate of one queue pair when it sent, in order of time, on the clock of the logs; a value
    holds until the next one. Each port of a host numbers its own queue pairs; None in runs that did
    not say. `source` and `destination` are ranks, None where no log has the queue pair, or logs of
    two ranks of the host have its number."""

    host: str
    port: str | None
    qpn: int
    source: int | None
    destination: int | None
    times_ns: tuple[int, ...]
    rates_bps: tuple[int, ...]

    @property
    def name(self) -> str:
        """The owner of the rate."""
        if self.source is None:
            return f"queue pair {self.qpn} of {self.port or self.host}"
        return f"rank {self.source} → {self.destination}, queue pair {self.qpn} of {self.host}"


def rate_series(run: Run) -> tuple[RateSeries, ...]:
    """The series of every queue pair, by host and number; none where the kernel kept none.

    Raises RunError for a line that is no sample.
    """
    path = run.directory / "rates.jsonl"
    if not path.exists():
        return ()
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    found: dict[tuple[str, str | None, int], list[_RateSample]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            sample = _SAMPLE.validate_json(line)
        except ValidationError as error:
            raise RunError(f"{path}: line {number}: {first_mistake(error)}") from None
        key = sample["host"], sample.get("port"), sample["qpn"]
        found.setdefault(key, []).append(sample)
    ranks: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for log in run.ranks:
        for pair in log.queue_pairs:
            ranks.setdefault((log.host, pair.local_qpn), set()).add((log.rank, pair.peer))
    series = []
    for (host, port, qpn), samples in sorted(found.items(), key=_in_order):
        samples.sort(key=lambda sample: sample["time_ns"])
        ends = ranks.get((host, qpn), set())
        source, destination = min(ends) if len(ends) == 1 else (None, None)
        times = tuple(sample["time_ns"] for sample in samples)
        rates = tuple(sample["rate_bps"] for sample in samples)
        series.append(RateSeries(host, port, qpn, source, destination, times, rates))
    return tuple(series)


def _in_order(item: tuple[tuple[str, str | None, int], object]) -> tuple[str, str, int]:
    (host, port, qpn), _ = item
    return host, port or "", qpn

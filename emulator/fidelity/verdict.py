"""The verdict on a run: valid, or not and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from emulator.fidelity.thresholds import THRESHOLDS, Threshold


@dataclass(frozen=True)
class Figures:
    """The measurements over a run. None: this kernel does not tell, or nothing was to be seen.

    Shares are of time (0 to 1): `saturated_share` of samples in which the busiest core was
    saturated, `rank_delay_share` of the rank that waited longest. `queue_lateness` is the share of
    their rate by which ports stayed behind it that always had enough to send. `late_delay_lines` is
    of the looks at delay lines that held something. `pause_reaction_ns` is the worst time from XOFF
    to a closed plug, where it was worst against what the port's headroom allows.
    """

    saturated_share: float | None = None
    steal_share: float | None = None
    softnet_drops: int | None = None
    lost_outside_queues: int | None = None
    queue_lateness: float | None = None
    late_delay_lines: float | None = None
    rank_delay_share: float | None = None
    timer_lateness_ns: int | None = None
    capture_drops: int | None = None
    pause_reaction_ns: int | None = None


@dataclass(frozen=True)
class Verdict:
    """`reasons` has one entry per violated threshold; `of_time` are those of them that threaten
    times alone; `samples` are the figures by name."""

    valid: bool
    reasons: tuple[str, ...]
    samples: Mapping[str, float | int | None]
    of_time: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Plain data, for environment.json."""
        return {
            "valid": self.valid,
            "reasons": list(self.reasons),
            "of_time": list(self.of_time),
            "samples": dict(self.samples),
        }


def judge(figures: Figures, thresholds: Sequence[Threshold] = THRESHOLDS) -> Verdict:
    """Holds the figures of a run against the thresholds. A figure that could not be measured
    violates none."""
    samples: dict[str, float | int | None] = asdict(figures)
    reasons, of_time = [], []
    for threshold in thresholds:
        figure = samples[threshold.name]
        if figure is not None and figure > threshold.limit:
            reasons.append(threshold.explain(figure))
            if threshold.of_time:
                of_time.append(reasons[-1])
    return Verdict(not reasons, tuple(reasons), samples, tuple(of_time))

"""The verdict on a run: what its kernel noticed, and what its times say against themselves."""

from __future__ import annotations

from analysis.impossible import impossible_times
from analysis.records import Verdict
from analysis.run import Run

_QUOTED = 3


def verdict_of(run: Run) -> Verdict:
    """Whether the run's figures can be believed, and why not.

    The run's own verdict (environment.json) and one reason more when times were measured that
    cannot have been. Raises RunError.
    """
    noticed = run.environment.verdict
    impossible = impossible_times(run)
    if not impossible:
        return noticed
    slowed = f", slowed down {run.environment.scale} times" if run.environment.scale > 1 else ""
    quoted = "; ".join(str(each) for each in impossible[:_QUOTED])
    more = len(impossible) - _QUOTED
    reason = (
        f"times were measured that no fabric of this spec{slowed} can have made, so the clock or "
        f"the links were wrong: {quoted}" + (f"; and {more:,} more" if more > 0 else "")
    )
    return Verdict(valid=False, reasons=[*noticed.reasons, reason])

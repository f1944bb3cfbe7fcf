"""The parameters of a predictor that a calibration may fit (docs/comparing.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from analysis.predict.interface import PredictorError
from collectives.kinds import Kind


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a calibrated parameter: its value in the physical ideal, and bounds."""

    ideal: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Parameters:
    """Corrections to the physical ideal; the defaults are the ideal itself, uncalibrated.

    `hop_overhead_ns` is added to the latency of every hop, `message_overhead_ns` to every message's
    start; `bandwidth_efficiency` scales every link's rate. `congestion_factor` multiplies the
    serialisation time of messages that share a port or link (above 1: incast), `fan_out_factor`
    that of a broadcast or scatter, whose messages share their sender's port (below 1: the port
    sends some first instead of all alike). Raises PredictorError for values that mean nothing.
    """

    hop_overhead_ns: float = 0.0
    message_overhead_ns: float = 0.0
    bandwidth_efficiency: float = 1.0
    congestion_factor: float = 1.0
    fan_out_factor: float = 1.0

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise PredictorError(f"{spec.name}: expected a number, found {value!r}")
            if not math.isfinite(value):
                raise PredictorError(f"{spec.name}: expected a finite number, found {value!r}")
            allowed = RANGES[spec.name]
            if not allowed.low <= value <= allowed.high:
                raise PredictorError(
                    f"{spec.name}: expected {allowed.low:g} to {allowed.high:g}, found {value!r}"
                )

    def sharing_factor(self, kind: str) -> float:
        """The factor of a collective's messages that share a port or link."""
        return (
            self.fan_out_factor
            if kind in (Kind.BROADCAST, Kind.SCATTER)
            else self.congestion_factor
        )


RANGES: Mapping[str, Range] = {
    "hop_overhead_ns": Range(0.0, -1e5, 1e7),
    "message_overhead_ns": Range(0.0, -1e5, 1e7),
    "bandwidth_efficiency": Range(1.0, 0.001, 1.5),
    "congestion_factor": Range(1.0, 0.1, 100.0),
    "fan_out_factor": Range(1.0, 0.1, 100.0),
}

"""UDP for the messages of programs, whose windows and time-outs no predictor follows."""

from __future__ import annotations

from analysis.predict.transports.tcp import PredictedTcp
from topologies.spec.sections import Sections


class PredictedUdp(PredictedTcp):
    """Refused."""

    def unknown(self, spec: Sections) -> str | None:
        """By name."""
        return "transport.kind: udp: no predictor follows its windows and time-outs"


PART = PredictedUdp()

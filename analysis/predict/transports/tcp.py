"""TCP, which engines know."""

from __future__ import annotations

from analysis.predict.carrier import Carrier, PredictedTransport
from topologies.spec.sections import Sections


class PredictedTcp(PredictedTransport):
    """Sockets alone."""

    def carrier(self, spec: Sections) -> Carrier | None:
        """None."""
        return None

    def unknown(self, spec: Sections) -> str | None:
        """Nothing."""
        return None


PART = PredictedTcp()

"""MRC in captures: its queue pairs are found among RoCE's (`roce.py`)."""

from __future__ import annotations

from analysis.decode.transports.tcp import DecodedTcp


class DecodedMrc(DecodedTcp):
    """None beside RoCE's."""


PART = DecodedMrc()

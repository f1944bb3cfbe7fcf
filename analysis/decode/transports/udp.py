"""UDP for the messages of programs: its datagrams are counted among other packets."""

from __future__ import annotations

from analysis.decode.transports.tcp import DecodedTcp


class DecodedUdp(DecodedTcp):
    """Bytes of datagrams are not split by collective."""


PART = DecodedUdp()

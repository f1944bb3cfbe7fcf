"""TCP: sockets, which Gloo makes."""

from __future__ import annotations

from workloads.execution.transports.interface import Place, RankTransport


class RankTcp(RankTransport):
    """Without ends of its own."""

    def place(self, text: str | None) -> Place | None:
        """None."""
        return None


PART = RankTcp()

"""RoCE: queue pairs of the host's devices (`workloads/execution/verbs/`)."""

from __future__ import annotations

from workloads.execution.transports.interface import Place, RankTransport
from workloads.execution.verbs.place import RocePlace


class RankRoce(RankTransport):
    """With queue pairs for the messages of programs."""

    def place(self, text: str | None) -> Place | None:
        """The place of a rank's devices."""
        if text is None:
            raise LookupError(
                "there are no RDMA devices, allowed: tcp; devices are in runs whose spec has "
                "transport: {kind: roce}"
            )
        return RocePlace.from_json(text)


PART = RankRoce()

"""TCP, whose connections are found by the bytes that go over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.decode.data_connection import DataConnection, DecodedTransport
from analysis.decode.gloo.connection_groups import GroupDirectory
from analysis.decode.ledger import Ledger
from analysis.decode.tcp.pcap import Packets
from analysis.runs.run import Run


class DecodedTcp(DecodedTransport):
    """Nothing beside TCP connections."""

    def logged(self, run: Run) -> Sequence[Any]:
        """None: TCP's connections are logged for themselves."""
        return ()

    def found(
        self,
        files: Sequence[Packets],
        logged: Sequence[Any],
        directory: GroupDirectory,
        first_number: int,
    ) -> tuple[list[DataConnection], Ledger | None]:
        """None."""
        return [], None


PART = DecodedTcp()

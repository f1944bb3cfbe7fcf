"""The connections that carry data, and how a transport finds its own in captures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.decode.capture_view import Connection
from analysis.decode.gloo.connection_groups import GroupDirectory, Membership
from analysis.decode.ledger import Ledger
from analysis.decode.tcp.pcap import Packets
from analysis.runs.run import Run


@dataclass(frozen=True)
class DataConnection:
    """One of Gloo's connections, or two connected ends of a transport with packets of its own, with
    what their streams told.

    `assumed_bytes` lie in messages that were inferred and could belong to another slot; none
    do where the log says which messages there were, and just those were found.
    """

    connection: Connection
    member: Membership
    messages: int
    inferred_messages: int
    assumed_bytes: int
    unattributed_bytes: int


class DecodedTransport(ABC):
    """A transport, as captures show it."""

    @abstractmethod
    def logged(self, run: Run) -> Sequence[Any]:
        """The ends that ranks logged, as `found` takes it."""

    @abstractmethod
    def found(
        self,
        files: Sequence[Packets],
        logged: Sequence[Any],
        directory: GroupDirectory,
        first_number: int,
    ) -> tuple[list[DataConnection], Ledger | None]:
        """Its connections in these captures, and the ledger of their bytes, where there are some.
        In the ledger they are numbered from `first_number` on."""

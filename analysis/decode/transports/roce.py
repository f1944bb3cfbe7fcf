"""RoCE in captures: queue pairs, found by what ranks logged of them, or by the port they send
from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import IPv4Address

from analysis.decode.data_connection import DataConnection, DecodedTransport
from analysis.decode.gloo.connection_groups import GroupDirectory, Membership
from analysis.decode.ledger import Ledger
from analysis.decode.roce.queue_pairs import (
    NO_IMMEDIATE,
    ConnectedPair,
    LoggedQueuePairs,
    QueuePair,
    queue_pairs,
)
from analysis.decode.roce.shares import roce_ledger
from analysis.decode.tcp.pcap import Packets
from analysis.runs.run import Run


class DecodedRoce(DecodedTransport):
    """Two connected queue pairs are a connection."""

    def logged(self, run: Run) -> Sequence[LoggedQueuePairs]:
        """The queue pairs of ranks, each connection once."""
        found = {}
        for log in run.ranks:
            for record in log.queue_pairs:
                ranks = log.rank, record.peer
                addresses = record.local_address, record.remote_address
                numbers = record.local_qpn, record.remote_qpn
                psns = record.start_psn, record.remote_start_psn
                first, second = (
                    QueuePair(int(IPv4Address(address)), number)
                    for address, number in zip(addresses, numbers, strict=True)
                )
                found[frozenset((first, second))] = LoggedQueuePairs(
                    record.group, ranks, ConnectedPair((first, second), psns)
                )
        return tuple(found.values())

    def found(
        self,
        files: Sequence[Packets],
        logged: Sequence[LoggedQueuePairs],
        directory: GroupDirectory,
        first_number: int,
    ) -> tuple[list[DataConnection], Ledger | None]:
        """The queue pairs in these captures."""
        places = {}
        for each in logged:
            for ends, ranks in (
                (each.pair.ends, each.ranks),
                (each.pair.ends[::-1], each.ranks[::-1]),
            ):
                places[ends] = Membership(each.group, *ranks)
        found: list[DataConnection] = []
        owners: list[Callable[[int], int]] = []
        pairs = queue_pairs(files, [each.pair for each in logged])
        for number, pair in enumerate(pairs):
            member = places.get(pair.ends, Membership(f"queue pairs {number}", None, None))
            messages = [each.messages for each in pair.directions]
            nameless = [each.immediate == NO_IMMEDIATE for each in messages]
            unknown = sum(
                int((each.end - each.position)[no].sum())
                for each, no in zip(messages, nameless, strict=True)
            )
            count = sum(int((~no).sum()) for no in nameless)
            found.append(DataConnection(pair, member, count, 0, 0, unknown))
            owners.append(partial(directory.owner_of, member.group))
        if not found:
            return [], None
        return found, roce_ledger(files, pairs, owners, first_number)


PART = DecodedRoce()

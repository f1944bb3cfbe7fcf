"""Every byte of a run's captures attributed: to a collective, its message and step, or by name.

    captures = [read_pcap(path) for path in run.captures]
    result = attribute(captures, collectives, addresses)
    result.by_collective()

The sums are checked against the files: `attribute` raises rather than return a table that
does not add up. Bytes of which a capture cannot tell are counted, never dropped: `assumed_bytes`
(inferred, but from order alone) and `unattributed_bytes`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.decode.byte_ledger import COLUMNS, split
from analysis.decode.capture_view import CaptureView
from analysis.decode.data_connection import DataConnection
from analysis.decode.entry_facts import EntryFacts
from analysis.decode.gloo.connection_groups import (
    UNLOGGED,
    GroupDirectory,
    LoggedCollective,
    LoggedConnection,
)
from analysis.decode.gloo.expected_messages import ExpectedMessages
from analysis.decode.gloo.rendezvous import resolve
from analysis.decode.gloo.stream import is_gloo, walk
from analysis.decode.gloo.wire_format import Prefix
from analysis.decode.ledger import BYTE_COLUMNS, Ledger, Purpose
from analysis.decode.tcp.assembly import connections
from analysis.decode.tcp.pcap import Packets
from analysis.decode.transports import DECODED_TRANSPORTS
from topologies.spec.run_sections import MINIMUM_SNAPLEN

Int64 = npt.NDArray[np.int64]


class AttributionError(ValueError):
    """Captures from which bytes cannot be attributed; says why and what would help."""


@dataclass(frozen=True)
class FileBytes:
    """One capture file, divided without rest: data connections, other TCP, everything else."""

    path: Path
    packets: int
    wire_bytes: int
    data_connection_bytes: int
    other_tcp_bytes: int
    other_bytes: int


@dataclass(frozen=True)
class CollectiveBytes:
    """The bytes that one collective (or set-up, teardown, unattributed) put on the wire."""

    collective: LoggedCollective | None
    group: str
    kind: str
    tag: int | None
    messages: int
    data_bytes: int
    preamble_bytes: int
    retransmitted_bytes: int
    header_bytes: int
    ack_bytes: int
    packets: int
    ack_packets: int

    @property
    def wire_bytes(self) -> int:
        return sum(getattr(self, name) for name in BYTE_COLUMNS)

    @property
    def overhead(self) -> float:
        """Bytes on the wire per byte of data, less one."""
        return self.wire_bytes / self.data_bytes - 1 if self.data_bytes else float("inf")


@dataclass(frozen=True)
class Attribution:
    """The outcome for all captures of a run."""

    files: tuple[FileBytes, ...]
    connections: tuple[DataConnection, ...]
    collectives: tuple[LoggedCollective, ...]
    ledger: Ledger

    @property
    def unattributed_bytes(self) -> int:
        """Bytes on the wire, over all files, that no message could be found for."""
        return int(self.ledger.wire_bytes[self.ledger.purpose == Purpose.UNATTRIBUTED].sum())

    @property
    def assumed_bytes(self) -> int:
        """Stream bytes whose slot is likely, but neither proved nor confirmed by the log."""
        return sum(connection.assumed_bytes for connection in self.connections)

    @property
    def unlogged_bytes(self) -> int:
        """Bytes on the wire of messages whose slot no logged collective has."""
        ledger = self.ledger
        orphan = (ledger.collective == UNLOGGED) & (ledger.purpose < Purpose.SET_UP)
        return int(ledger.wire_bytes[orphan].sum())

    def by_collective(self, file: int | None = None) -> tuple[CollectiveBytes, ...]:
        """Bytes of each collective, in the order of their first packet.

        For one capture file, or (None) for each packet once, where it was first seen.
        """
        ledger = self.ledger
        rows = np.flatnonzero(ledger.primary if file is None else ledger.file == file)
        rows = rows[np.argsort(ledger.start_ns[rows], kind="stable")]
        if not rows.size:
            return ()
        # Rows with equal keys have one owner; a column that does not tell is 0 for all of them.
        purpose, collective = ledger.purpose[rows], ledger.collective[rows]
        unlogged = (purpose < Purpose.SET_UP) & (collective == UNLOGGED)
        numbers: dict[str, int] = {}
        for each in self.connections:
            numbers.setdefault(each.member.group, len(numbers))
        group = np.array([numbers[each.member.group] for each in self.connections])
        keys = np.stack(
            [
                np.where(purpose < Purpose.SET_UP, 0, purpose),
                np.where(purpose < Purpose.SET_UP, collective, 0),
                np.where(unlogged, group[ledger.connection[rows]], 0),
                np.where(unlogged, ledger.prefix[rows], 0),
                np.where(unlogged, ledger.tag[rows], 0),
            ]
        )
        order = np.lexsort(keys[::-1])
        parts = np.split(order, np.flatnonzero(np.diff(keys[:, order], axis=1).any(axis=0)) + 1)
        parts.sort(key=lambda part: int(part[0]))
        return tuple(self._sum(rows[part]) for part in parts)

    def _sum(self, rows: Int64) -> CollectiveBytes:
        ledger, first = self.ledger, int(rows[0])
        purpose = Purpose(int(ledger.purpose[first]))
        collective = None
        if purpose >= Purpose.SET_UP:
            group, kind, tag = "", purpose.name.lower().replace("_", "-"), None
        elif ledger.collective[first] != UNLOGGED:
            collective = self.collectives[int(ledger.collective[first])]
            group, kind, tag = collective.group, collective.kind, collective.tag
        else:
            group = self.connections[int(ledger.connection[first])].member.group
            prefix, tag = int(ledger.prefix[first]), int(ledger.tag[first])
            kind = Prefix(prefix).name.lower() if prefix in set(Prefix) else f"prefix {prefix}"
        sums = {name: int(ledger.counts[number, rows].sum()) for number, name in enumerate(COLUMNS)}
        data = rows[ledger.purpose[rows] == Purpose.DATA]
        places = np.stack(
            [ledger.connection[data], ledger.direction[data], ledger.prefix[data],
             ledger.tag[data], ledger.delta[data], ledger.step[data]]
        )  # fmt: skip
        messages = np.unique(places, axis=1).shape[1] if data.size else 0
        return CollectiveBytes(collective, group, kind, tag, messages, **sums)


def attribute(
    files: Sequence[Packets],
    collectives: Sequence[LoggedCollective] = (),
    addresses: Mapping[int, str] | None = None,
    clock_offset_ns: int | None = None,
    logged_ends: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    logged_connections: Sequence[LoggedConnection] = (),
) -> Attribution:
    """Attribute every byte of these captures.

    Args:
        files: the captures of one run; they may overlap.
        collectives: what the ranks logged, barriers and alignments included. Without it,
            collectives are told apart by group, kind and tag, but have no name.
        addresses: IPv4 address of each rank.
        clock_offset_ns: packet time minus log time of the same moment, where known.
        logged_ends: what ranks logged of the ends of a transport, by its kind
            (`DecodedTransport.logged`).
        logged_connections: the connections of which the log has the ports.

    Raises:
        AttributionError: a snap length that kept no preamble, or sums that do not agree.
    """
    for packets in files:
        _require_preambles(packets)
    directory = GroupDirectory(collectives, addresses or {}, clock_offset_ns, logged_connections)
    expected = ExpectedMessages(collectives, clock_offset_ns)
    found: list[DataConnection] = []
    facts = EntryFacts()
    ordinal: dict[tuple[int, int], int] = defaultdict(int)
    for connection in connections(files):
        if not is_gloo(connection):
            continue
        ends = connection.forward.source.address, connection.forward.destination.address
        pair = (min(ends), max(ends))
        streams = walk(connection.forward, True), walk(connection.backward, False)
        member = directory.place(connection, streams, ordinal[pair])
        outcome = resolve(*streams, expected.on(member))
        ordinal[pair] += 1
        owners = directory.collectives_of(member, streams)
        for stream in streams:
            facts.add(stream, owners)
        found.append(
            DataConnection(
                connection,
                member,
                sum(len(stream.messages) for stream in streams),
                outcome.inferred_messages,
                outcome.assumed_bytes,
                outcome.unresolved_bytes,
            )
        )
    ledger = _ledger(files, found, facts)
    for kind, transport in DECODED_TRANSPORTS.items():
        more, its_ledger = transport.found(files, logged_ends.get(kind, ()), directory, len(found))
        found += more
        if its_ledger is not None:
            ledger += its_ledger
    counted = np.zeros(len(files), dtype=np.int64)
    np.add.at(counted, ledger.file, ledger.wire_bytes)
    totals = _divide(files, found)
    for total, attributed in zip(totals, counted.tolist(), strict=True):
        if total.data_connection_bytes != attributed:
            raise AttributionError(
                f"{total.path}: data connections hold {total.data_connection_bytes} bytes, of "
                f"which {attributed} were attributed; this is a defect of the attribution"
            )
    return Attribution(totals, tuple(found), directory.collectives, ledger)


def _require_preambles(packets: Packets) -> None:
    cut = packets.captured_bytes < packets.wire_bytes
    if 0 < packets.snaplen < MINIMUM_SNAPLEN and bool(np.any(cut & packets.is_tcp)):
        raise AttributionError(
            f"{packets.path}: captured with snaplen {packets.snaplen}, which keeps no preamble "
            f"of Gloo; at least {MINIMUM_SNAPLEN} is needed, 160 is the default"
        )


def _divide(files: Sequence[Packets], found: Sequence[DataConnection]) -> tuple[FileBytes, ...]:
    """Each file's bytes by kind of packet, counted from the packets and not from the ledger."""
    mine = [np.zeros(len(packets), dtype=np.bool_) for packets in files]
    for connection in found:
        for direction in connection.connection.directions:
            for seen in direction.views:
                mine[seen.file][seen.rows] = True
    return tuple(
        FileBytes(
            path=packets.path,
            packets=len(packets),
            wire_bytes=int(packets.wire_bytes.sum()),
            data_connection_bytes=int(packets.wire_bytes[mine_of].sum()),
            other_tcp_bytes=int(packets.wire_bytes[packets.is_tcp & ~mine_of].sum()),
            other_bytes=int(packets.wire_bytes[~packets.is_tcp & ~mine_of].sum()),
        )
        for packets, mine_of in zip(files, mine, strict=True)
    )


def _ledger(files: Sequence[Packets], found: Sequence[DataConnection], facts: EntryFacts) -> Ledger:
    """Every view of the connections, whose entries `facts` has, divided over these."""
    views: list[CaptureView] = []
    directions: list[int] = []
    primary: list[bool] = []
    for number, connection in enumerate(found):
        for side, direction in enumerate(connection.connection.directions):
            # Where the same packets were captured several times, the first place is the sender's.
            first = min(
                direction.views,
                key=lambda s: (int(files[s.file].timestamp_ns[s.rows[0]]), -len(s.rows), s.file),
                default=None,
            )
            views += direction.views
            directions += [2 * number + side] * len(direction.views)
            primary += [seen is first for seen in direction.views]
    shares = split(files, views, np.array(directions, dtype=np.int64), facts.entries())
    return Ledger(
        **{name: column[shares.entry] for name, column in facts.columns().items()},
        file=np.array([seen.file for seen in views], dtype=np.int64)[shares.view],
        connection=shares.direction // 2,
        direction=shares.direction % 2,
        primary=np.array(primary, dtype=np.bool_)[shares.view],
        counts=shares.counts,
    )

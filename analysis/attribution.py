"""Every byte of a run's captures attributed: to a collective, its message and step, or by name.

    captures = [read_pcap(path) for path in run.captures]
    result = attribute(captures, collectives, addresses)
    result.by_collective()

The sums are checked against the files: `attribute` raises rather than return a table that
does not add up. What a capture cannot tell is counted, never dropped: `assumed_bytes`
(inferred, but from order alone) and `unattributed_bytes`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from analysis.byte_ledger import COLUMNS, FIRST_MESSAGE, SETUP, TEARDOWN, Entries, split
from analysis.connection_groups import UNLOGGED, GroupDirectory, LoggedCollective, Membership
from analysis.expected_messages import ExpectedMessages
from analysis.gloo_stream import Gap, Message, MessageStream, is_gloo, walk
from analysis.gloo_wire import Prefix, Slot
from analysis.ledger import BYTE_COLUMNS, FACTS, Ledger, Purpose
from analysis.pcap import Packets
from analysis.rendezvous import resolve
from analysis.tcp_stream import Connection, connections
from topologies.run_spec import MINIMUM_SNAPLEN

Int64 = npt.NDArray[np.int64]


class AttributionError(ValueError):
    """Captures from which bytes cannot be attributed; says why and what would help."""


@dataclass(frozen=True)
class FileBytes:
    """One capture file, divided without rest: data + other TCP + everything else."""

    path: Path
    packets: int
    wire_bytes: int
    data_connection_bytes: int
    other_tcp_bytes: int
    other_bytes: int


@dataclass(frozen=True)
class DataConnection:
    """One of Gloo's connections, with what its streams told.

    `assumed_bytes` lie in messages that were inferred and could belong to another slot; none
    do where the log says which messages there were, and just those were found.
    """

    connection: Connection
    member: Membership
    messages: int
    inferred_messages: int
    assumed_bytes: int
    unattributed_bytes: int


@dataclass(frozen=True)
class CollectiveBytes:
    """What one collective (or set-up, teardown, unattributed) put on the wire."""

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

        Of one capture file, or (None) of each packet once, where it was first seen.
        """
        ledger = self.ledger
        rows = np.flatnonzero(ledger.primary if file is None else ledger.file == file)
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for row in rows[np.argsort(ledger.start_ns[rows], kind="stable")].tolist():
            groups[self._owner(row)].append(row)
        return tuple(self._sum(key, np.array(chosen)) for key, chosen in groups.items())

    def _owner(self, row: int) -> tuple[object, ...]:
        ledger = self.ledger
        purpose = Purpose(int(ledger.purpose[row]))
        if purpose >= Purpose.SET_UP:
            return (purpose.name.lower().replace("_", "-"),)
        if ledger.collective[row] != UNLOGGED:
            return ("collective", int(ledger.collective[row]))
        group = self.connections[int(ledger.connection[row])].member.group
        return "slot", group, int(ledger.prefix[row]), int(ledger.tag[row])

    def _sum(self, key: tuple[object, ...], rows: Int64) -> CollectiveBytes:
        ledger = self.ledger
        collective = None
        group, kind, tag = "", str(key[0]), None
        if key[0] == "collective":
            assert isinstance(key[1], int)
            collective = self.collectives[key[1]]
            group, kind, tag = collective.group, collective.kind, collective.tag
        elif key[0] == "slot":
            group, prefix, tag = str(key[1]), int(str(key[2])), int(str(key[3]))
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
) -> Attribution:
    """Attribute every byte of these captures.

    Args:
        files: the captures of one run; they may overlap.
        collectives: what the ranks logged, barriers and alignments included. Without it,
            collectives are told apart by group, kind and tag, but have no name.
        addresses: IPv4 address of each rank.
        clock_offset_ns: packet time minus log time of the same moment, where known.

    Raises:
        AttributionError: a snap length that kept no preamble, or sums that do not agree.
    """
    for packets in files:
        _require_preambles(packets)
    directory = GroupDirectory(collectives, addresses or {}, clock_offset_ns)
    expected = ExpectedMessages(collectives, clock_offset_ns)
    found: list[DataConnection] = []
    parts: list[dict[str, Int64]] = []
    ordinal: dict[tuple[int, int], int] = defaultdict(int)
    data_bytes = [0] * len(files)
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
        number = len(found)
        for rows in _rows(files, number, connection, streams, owners):
            parts.append(rows)
            data_bytes[int(rows["file"][0])] += int(rows["counts"][:, : len(BYTE_COLUMNS)].sum())
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
    totals = [_divide(packets, number, found) for number, packets in enumerate(files)]
    for total, counted in zip(totals, data_bytes, strict=True):
        if total.data_connection_bytes != counted:
            raise AttributionError(
                f"{total.path}: data connections hold {total.data_connection_bytes} bytes, of "
                f"which {counted} were attributed; this is a defect of analysis.attribution"
            )
    ledger = Ledger.join(parts)
    return Attribution(tuple(totals), tuple(found), directory.collectives, ledger)


def _require_preambles(packets: Packets) -> None:
    cut = packets.captured_bytes < packets.wire_bytes
    if 0 < packets.snaplen < MINIMUM_SNAPLEN and bool(np.any(cut & packets.is_tcp)):
        raise AttributionError(
            f"{packets.path}: captured with snaplen {packets.snaplen}, which keeps no preamble "
            f"of Gloo; at least {MINIMUM_SNAPLEN} is needed, 160 is the default"
        )


def _divide(packets: Packets, number: int, found: Sequence[DataConnection]) -> FileBytes:
    """A file's bytes by kind of packet, counted from the packets and not from the ledger."""
    mine = np.zeros(len(packets), dtype=np.bool_)
    for connection in found:
        for direction in connection.connection.directions:
            for seen in direction.sightings:
                if seen.file == number:
                    mine[seen.rows] = True
    wire = packets.wire_bytes
    return FileBytes(
        path=packets.path,
        packets=len(packets),
        wire_bytes=int(wire.sum()),
        data_connection_bytes=int(wire[mine].sum()),
        other_tcp_bytes=int(wire[packets.is_tcp & ~mine].sum()),
        other_bytes=int(wire[~packets.is_tcp].sum()),
    )


def _rows(
    files: Sequence[Packets],
    number: int,
    connection: Connection,
    streams: tuple[MessageStream, MessageStream],
    owners: Mapping[int, int],
) -> Iterator[dict[str, Int64]]:
    """Ledger rows of one connection: a table per direction, file and owner of the bytes."""
    entries = [
        Entries.of(
            [part.position for part in stream.parts],
            [isinstance(part, Message) for part in stream.parts],
        )
        for stream in streams
    ]
    facts = [_facts(stream, owners) for stream in streams]
    for side, direction in enumerate(connection.directions):
        # Where the same packets were captured several times, the first place is the sender's.
        first = min(
            direction.sightings,
            key=lambda s: (int(files[s.file].timestamp_ns[s.rows[0]]), -len(s.rows), s.file),
            default=None,
        )
        for seen in direction.sightings:
            tables = split(files[seen.file], seen, entries[side], entries[1 - side])
            for owner, table in ((side, tables[0]), (1 - side, tables[1])):
                used = np.flatnonzero(table.any(axis=0))
                if not used.size:
                    continue
                size = len(used)
                yield {
                    **{name: column[used] for name, column in facts[owner].items()},
                    "file": np.full(size, seen.file, dtype=np.int64),
                    "connection": np.full(size, number, dtype=np.int64),
                    "direction": np.full(size, owner, dtype=np.int64),
                    "primary": np.full(size, seen is first, dtype=np.int64),
                    "counts": table[:, used].T,
                }


def _facts(stream: MessageStream, owners: Mapping[int, int]) -> dict[str, Int64]:
    """What each entry of a direction is; shape (entries,) each."""
    size = FIRST_MESSAGE + len(stream.parts)
    columns = {name: np.full(size, -1, dtype=np.int64) for name in FACTS}
    columns["purpose"][[SETUP, TEARDOWN]] = Purpose.SET_UP, Purpose.TEARDOWN
    columns["start_ns"][[SETUP, TEARDOWN]] = (
        stream.direction.time_ns(0),
        stream.direction.time_ns(stream.direction.length_bytes),
    )
    for index, part in enumerate(stream.parts, start=FIRST_MESSAGE):
        columns["position"][index], columns["end"][index] = part.position, part.end
        columns["start_ns"][index] = stream.direction.time_ns(part.position)
        if isinstance(part, Gap) or part.slot is None or part.opcode is None:
            columns["purpose"][index] = Purpose.UNATTRIBUTED
            continue
        slot = Slot.decode(part.slot)
        columns["purpose"][index] = Purpose.of(part.opcode)
        columns["collective"][index] = owners.get(id(part), UNLOGGED)
        columns["prefix"][index] = slot.prefix
        columns["tag"][index] = slot.tag
        columns["delta"][index] = slot.delta
        columns["step"][index] = part.step
    return columns

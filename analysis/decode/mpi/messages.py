"""The messages of OpenMPI's ranks: who sent what to whom, and in which collective."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from analysis.decode.gloo.stream import is_gloo
from analysis.decode.gloo.wire_messages import HostTimes
from analysis.decode.mpi.collectives import group_of, mpi_collectives
from analysis.decode.mpi.exchanges import exchanges_of_messages, unpredicted
from analysis.decode.mpi.frames import envelopes, rank_of_greeting
from analysis.decode.mpi.records import lines_of
from analysis.decode.run_capture import clock_offset_ns, offset_noted_in
from analysis.decode.tcp.assembly import connections
from analysis.decode.tcp.pcap import Packets, read_pcap
from analysis.decode.tcp.stream import Direction, TcpConnection
from analysis.runs.collectives import two_frames_ns
from analysis.runs.mpi_messages import MpiMessage, write_mpi_messages
from analysis.runs.run import Run
from topologies.fabrics.fabric import Fabric

OTHER: Final = "other"

# The tags of `ompi/mca/coll/base/coll_tags.h` of OpenMPI 4.1.
_KINDS = {
    -10: "all_gather",
    -11: "all_gatherv",
    -12: "all_reduce",
    -13: "all_to_all",
    -14: "all_to_allv",
    -15: "all_to_allw",
    -16: "barrier",
    -17: "broadcast",
    -18: "exscan",
    -19: "gather",
    -20: "gatherv",
    -21: "reduce",
    -22: "reduce_scatter",
    -23: "reduce_scatter_block",
    -24: "scan",
    -25: "scatter",
    -26: "scatterv",
}


def kind_of_tag(tag: int) -> str:
    """The operation that a message is a part of: `send_recv` with tags of programs, a collective,
    or `other` (nonblocking collectives and OpenMPI's own)."""
    return "send_recv" if tag >= 0 else _KINDS.get(tag, OTHER)


@dataclass(frozen=True, slots=True)
class MpiConnection:
    """A TCP connection between two ranks of OpenMPI: (rank, port) of both ends, lower rank first,
    and its messages."""

    ends: tuple[tuple[int, int], tuple[int, int]]
    messages: tuple[MpiMessage, ...]


def mpi_connections(
    files: Sequence[Packets],
    captured: Mapping[int, frozenset[int]],
    offset_ns: int = 0,
    other: Callable[[TcpConnection], None] = lambda connection: None,
) -> Iterator[MpiConnection]:
    """All that captures show. `captured` has the numbers of the files of each host, by its address.
    `offset_ns` is packet time minus the ranks'. `other` is called with each connection that is not
    OpenMPI's."""
    for connection in connections(files):
        ranks = [rank_of_greeting(direction) for direction in connection.directions]
        first, second = ranks
        if first is None or second is None:
            other(connection)
            continue
        found: list[MpiMessage] = []
        for direction, ends in zip(
            connection.directions, ((first, second), (second, first)), strict=True
        ):
            found += _messages(direction, ends, captured, offset_ns)
        ports = connection.forward.source.port, connection.forward.destination.port
        lower, upper = sorted(((first, ports[0]), (second, ports[1])))
        yield MpiConnection((lower, upper), tuple(found))


def _messages(
    direction: Direction,
    ends: tuple[int, int],
    captured: Mapping[int, frozenset[int]],
    offset_ns: int,
) -> Iterator[MpiMessage]:
    leaving = HostTimes(direction, captured.get(direction.source.address, frozenset()))
    coming = HostTimes(direction, captured.get(direction.destination.address, frozenset()))

    def of_ranks(time_ns: int | None) -> int | None:
        return None if time_ns is None else time_ns - offset_ns

    for each in envelopes(direction):
        end = each.end
        yield MpiMessage(
            each.context,
            *ends,
            each.tag,
            kind_of_tag(each.tag),
            each.number,
            each.size_bytes,
            of_ranks(leaving.passed_ns(each.position)),
            None if end is None else of_ranks(leaving.whole_ns(end - 1)),
            None if end is None else of_ranks(coming.whole_ns(end - 1)),
        )


def _captured(
    files: Sequence[Packets], fabric: Fabric, hosts: Iterable[str]
) -> dict[int, frozenset[int]]:
    """The numbers of the files of each host, by its address."""
    number_of = {packets.path.stem: number for number, packets in enumerate(files)}
    captured = {}
    for host in set(hosts):
        ports = [link.port(host).interface for link in fabric.links_of[host]]
        address = int(fabric.by_name[host].address)
        captured[address] = frozenset(number_of[port] for port in ports if port in number_of)
    return captured


def messages_so_far(directory: Path, fabric: Fabric, hosts: Sequence[str]) -> list[MpiMessage]:
    """The messages between ranks on these hosts that the captures of a run directory have, also
    where the run has not come to its end. Raises CaptureFormatError, RunError, OSError."""
    ports = {link.port(host).interface for host in set(hosts) for link in fabric.links_of[host]}
    paths = sorted((directory / "capture").glob("*.pcap"))
    own = [read_pcap(path) for path in paths if path.stem in ports]
    offset_ns = offset_noted_in(directory) or 0
    return [
        message
        for each in mpi_connections(own, _captured(own, fabric, hosts), offset_ns)
        for message in each.messages
    ]


def add_mpi_messages(run: Run) -> int:
    """Write `mpi.jsonl` of a run whose captures have messages of OpenMPI, in the order in which
    they were sent, and add to the logs of ranks what they are parts of; returns how many there are.
    The names of its rows and groups begin with `mpi.` where ranks have told of others, which
    switches did.
    Raises CaptureFormatError, RunError, OSError."""
    told = any(log.collectives for log in run.ranks)
    files = [read_pcap(path) for path in run.captures]
    captured = _captured(files, run.fabric, run.hosts)
    others: Counter[int] = Counter()

    def other(connection: TcpConnection) -> None:
        ends = connection.forward.source.address, connection.forward.destination.address
        if all(end in captured for end in ends) and not (told and is_gloo(connection)):
            carried = sum(direction.length_bytes for direction in connection.directions)
            others[connection.forward.destination.port] += carried

    known = list(mpi_connections(files, captured, clock_offset_ns(run) or 0, other))
    messages = [message for each in known for message in each.messages]
    # Not all messages of ranks that share a host are on the wire.
    whole = len(set(run.hosts)) == len(run.hosts)
    found, left = mpi_collectives(messages) if whole else ([], messages)
    exchanges, left = exchanges_of_messages(left) if whole else ([], left)
    rows = [*found, *exchanges]
    prefix = "mpi." if told else ""
    rows = [row.called(f"{prefix}{row.id}") for row in rows]
    every = [*(message for each in rows for message in each.messages), *left]
    every.sort(key=lambda one: (one.sent_ns or 0, one.source, one.destination, one.number))
    if not every:
        return 0
    write_mpi_messages(run.directory, every)
    gaps_ns = dict(enumerate(two_frames_ns(run, range(len(run.hosts)))))
    lines = lines_of(rows, len(run.ranks), unpredicted(rows, gaps_ns), prefix)
    if whole:
        for each in known:
            (rank, port), (peer, peer_port) = each.ends
            line = {"event": "connection", "group": f"{prefix}{group_of(0)}", "peer": peer}
            lines[rank].insert(0, line | {"port": port, "peer_port": peer_port})
    by_port = {str(port): many for port, many in others.items()}
    line = {"event": "captured", "gloo_bytes": 0, "row_bytes": 0, "named": 0}
    lines[0].insert(0, line | {"other_bytes": by_port})
    for rank, own in lines.items():
        with (run.directory / "ranks" / f"{rank:03d}.jsonl").open("a") as file:
            file.write("".join(json.dumps(x, separators=(",", ":")) + "\n" for x in own))
    return len(every)

"""The messages of OpenMPI's ranks: who sent what to whom, and in which collective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from analysis.decode.gloo.collectives_on_wire import HostTimes
from analysis.decode.mpi.frames import envelopes, rank_of_greeting
from analysis.decode.run_capture import clock_offset_ns
from analysis.decode.tcp.assembly import connections
from analysis.decode.tcp.pcap import Packets, read_pcap
from analysis.runs.mpi_messages import MpiMessage, write_mpi_messages
from analysis.runs.run import Run

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
    """What a message is a part of: `send_recv` with tags of programs, a collective, or `other`
    (nonblocking collectives and OpenMPI's own)."""
    return "send_recv" if tag >= 0 else _KINDS.get(tag, OTHER)


def mpi_messages(
    files: Sequence[Packets], captured: Mapping[int, frozenset[int]], offset_ns: int = 0
) -> Iterator[MpiMessage]:
    """All messages that captures show, by connection. `captured` has the numbers of the files of
    each host, by its address. `offset_ns` is packet time minus the ranks'."""
    for connection in connections(files):
        ranks = [rank_of_greeting(direction) for direction in connection.directions]
        for direction, source, destination in zip(
            connection.directions, ranks, reversed(ranks), strict=True
        ):
            if source is None or destination is None:
                continue
            leaving = HostTimes(direction, captured.get(direction.source.address, frozenset()))
            coming = HostTimes(direction, captured.get(direction.destination.address, frozenset()))
            for each in envelopes(direction):
                sent_ns = leaving.passed_ns(each.position)
                come_ns = coming.whole_ns(each.end - 1) if each.eager else None
                yield MpiMessage(
                    each.context,
                    source,
                    destination,
                    each.tag,
                    kind_of_tag(each.tag),
                    each.number,
                    each.size_bytes,
                    None if sent_ns is None else sent_ns - offset_ns,
                    None if come_ns is None else come_ns - offset_ns,
                )


def add_mpi_messages(run: Run) -> int:
    """Write `mpi.jsonl` of a run whose captures have messages of OpenMPI, in the order in which
    they were sent; returns how many. Raises CaptureFormatError, RunError, OSError."""
    files = [read_pcap(path) for path in run.captures]
    number_of = {packets.path.stem: number for number, packets in enumerate(files)}
    captured = {}
    for host in set(run.hosts):
        ports = [link.port(host).interface for link in run.fabric.links_of[host]]
        address = int(run.fabric.by_name[host].address)
        captured[address] = frozenset(number_of[port] for port in ports if port in number_of)
    found = sorted(
        mpi_messages(files, captured, clock_offset_ns(run) or 0),
        key=lambda one: (one.sent_ns or 0, one.source, one.destination, one.number),
    )
    if found:
        write_mpi_messages(run.directory, found)
    return len(found)

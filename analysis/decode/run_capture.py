"""The captures of a run, decoded and attributed, on the clock of its logs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from analysis.decode.attribution import Attribution, attribute
from analysis.decode.gloo.connection_groups import LoggedCollective, LoggedConnection
from analysis.decode.tcp.pcap import Packets, read_pcap
from analysis.decode.transports import DECODED_TRANSPORTS
from analysis.runs.collectives import schedule_of_records
from analysis.runs.records import CollectiveRecord
from analysis.runs.run import Run, RunError, read_json
from topologies.spec.transports.connections import ONE

INDEX_FILE = "index.json"


@dataclass(frozen=True)
class RunCapture:
    """`clock_offset_ns` is packet time minus log time; 0 when the capture does not tell."""

    run: Run
    files: tuple[Packets, ...]
    attribution: Attribution
    clock_offset_ns: int

    @property
    def covers_every_rank(self) -> bool:
        """Whether all that ranks exchange is in it: all their hosts' ports, and no filter."""
        captured = {packets.path.stem for packets in self.files}
        links_of = self.run.fabric.links_of
        return self.run.spec.capture.filter is None and all(
            link.port(host).interface in captured
            for host in self.run.hosts
            for link in links_of[host]
        )


def load_capture(run: Run) -> RunCapture | None:
    """Read and attribute every capture of a run, about 150,000 packets per second.

    None for a run without captures. Raises CaptureFormatError, AttributionError, RunError.
    """
    if not run.captures:
        return None
    files = tuple(read_pcap(path) for path in run.captures)
    offset_ns = clock_offset_ns(run)
    addresses = {log.rank: log.address for log in run.ranks}
    # Switches are numbered after the ranks (collectives.in_network.node).
    for number, node in enumerate(run.fabric.routers, start=len(run.ranks)):
        addresses[number] = str(node.address)
    attribution = attribute(
        files,
        logged_collectives(run),
        addresses,
        offset_ns,
        {kind: part.logged(run) for kind, part in DECODED_TRANSPORTS.items()},
        logged_connections(run),
    )
    return RunCapture(run, files, attribution, offset_ns or 0)


def capture_bytes(run: Run) -> int:
    """Size of the captures, from which to tell how long `load_capture` will take."""
    return sum(path.stat().st_size for path in run.captures)


def logged_collectives(run: Run) -> tuple[LoggedCollective, ...]:
    """All that the ranks logged, alignments included: they are on the wire as well."""
    seen: dict[tuple[str, str, int | None], dict[int, CollectiveRecord]] = defaultdict(dict)
    for log in run.ranks:
        for record in log.collectives:
            # Alignments of one iteration share an id; tags tell them apart.
            seen[record.group, record.id, record.tag][log.rank] = record
    return tuple(_logged(run, by_rank) for by_rank in seen.values())


def _logged(run: Run, by_rank: dict[int, CollectiveRecord]) -> LoggedCollective:
    first = next(iter(by_rank.values()))
    ranks = tuple(range(len(run.ranks))) if first.ranks is None else tuple(first.ranks)
    return LoggedCollective(
        first.id,
        first.kind,
        first.group,
        first.tag,
        first.size_bytes,
        first.iteration,
        first.phase,
        ranks,
        first.element_bytes,
        first.root,
        first.peer,
        {rank: (record.start_ns, record.end_ns) for rank, record in by_rank.items()},
        schedule_of_records(run, ranks, by_rank),
        None if first.slots is None else (first.slots[0], first.slots[1]),
        tuple((rank, *share) for rank, record in by_rank.items() for share in record.sends or ()),
        ONE if first.slots is None else run.spec.between_sockets,
    )


def logged_connections(run: Run) -> tuple[LoggedConnection, ...]:
    """The connections of which ranks logged the ports."""
    address = {log.rank: int(IPv4Address(log.address)) for log in run.ranks}
    return tuple(
        LoggedConnection(
            each.group,
            (log.rank, each.peer),
            ((address[log.rank], each.port), (address[each.peer], each.peer_port)),
        )
        for log in run.ranks
        for each in log.connections
    )


def clock_offset_ns(run: Run) -> int | None:
    """Packet time minus the ranks' CLOCK_MONOTONIC, as the capture noted it; None when it noted
    nothing. Raises RunError."""
    return offset_noted_in(run.directory)


def offset_noted_in(directory: Path) -> int | None:
    """The same of a run directory, which may be that of a run that failed. Raises RunError."""
    path = directory / "capture" / INDEX_FILE
    if not path.exists():
        return None
    found = read_json(path)
    offset = found.get("clock_offset_ns") if isinstance(found, dict) else None
    if not isinstance(offset, int):
        raise RunError(f"{path}: expected an object with an integer clock_offset_ns")
    return offset

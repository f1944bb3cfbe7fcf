"""Collectives of a run whose ranks told of none, found in its captures and added to their logs."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any

from analysis.decode.gloo.collectives_on_wire import WireCollective, collectives_on_wire
from analysis.decode.gloo.groups_on_wire import WireGroup, groups_on_wire
from analysis.decode.gloo.rendezvous import resolve
from analysis.decode.gloo.stream import is_gloo, walk
from analysis.decode.run_capture import clock_offset_ns
from analysis.decode.tcp.assembly import connections
from analysis.decode.tcp.pcap import Packets, read_pcap
from analysis.runs.run import Run
from collectives.kinds import Kind


def wire_collectives(run: Run) -> tuple[list[WireGroup], list[WireCollective]]:
    """The groups and collectives that the captures of a run show, times as in the captures.

    None where ranks share hosts, as the captures do not tell them apart, or where a host's ports
    were not captured. Raises CaptureFormatError, RunError.
    """
    rank_at = {int(IPv4Address(log.address)): log.rank for log in run.ranks}
    files = [read_pcap(path) for path in run.captures]
    number_of = {packets.path.stem: number for number, packets in enumerate(files)}
    captured = {}
    for rank, host in enumerate(run.hosts):
        ports = [link.port(host).interface for link in run.fabric.links_of[host]]
        captured[rank] = frozenset(number_of[port] for port in ports if port in number_of)
    if len(rank_at) < len(run.ranks) or not all(captured.values()):
        return [], []
    return on_wire(files, rank_at, captured)


def on_wire(
    files: Sequence[Packets], rank_at: Mapping[int, int], captured: Mapping[int, frozenset[int]]
) -> tuple[list[WireGroup], list[WireCollective]]:
    """The groups and collectives in these captures. `rank_at` has the rank of each address,
    `captured` the numbers of the files of each rank's host."""
    found = []
    for connection in connections(files):
        if is_gloo(connection):
            streams = walk(connection.forward, True), walk(connection.backward, False)
            resolve(*streams, {})
            found.append((connection, streams))
    groups = groups_on_wire(found, rank_at, len(rank_at))
    seen = [each for group in groups for each in collectives_on_wire(group, captured)]
    return groups, seen


def add_found_collectives(run: Run) -> int:
    """Append to `ranks/NNN.jsonl` what the captures show, where no rank told of anything; returns
    how many collectives were found. Raises CaptureFormatError, RunError, OSError."""
    if any(log.observed or log.collectives for log in run.ranks) or not run.captures:
        return 0
    groups, found = wire_collectives(run)
    offset_ns = clock_offset_ns(run) or 0
    lines: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for group in groups:
        for rank, line in _ports(group):
            lines[rank].append(line)
    records: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for each in found:
        for rank, line in _records(each, len(run.ranks), offset_ns):
            records[rank].append(line)
    for rank, own in records.items():
        own.sort(key=lambda line: (line["end_ns"], line["start_ns"], line["id"]))
        ends = [line["end_ns"] for line in own]
        # What was over when a rank began the next one is all that it can have waited for.
        lines[rank] += [
            line | {"known": bisect_right(ends, line["start_ns"], hi=place)}
            for place, line in enumerate(own)
        ]
    for rank, of_rank in lines.items():
        with (run.directory / "ranks" / f"{rank:03d}.jsonl").open("a") as file:
            file.write("".join(json.dumps(x, separators=(",", ":")) + "\n" for x in of_rank))
    return len(found)


def _ports(group: WireGroup) -> list[tuple[int, dict[str, Any]]]:
    """A line of the lower rank for each connection."""
    found = []
    for initiator, responder, connection, _ in group.connections:
        ports = {
            initiator: connection.forward.source.port,
            responder: connection.forward.destination.port,
        }
        rank, peer = sorted(ports)
        line = {
            "event": "connection",
            "group": group.name,
            "peer": peer,
            "port": ports[rank],
            "peer_port": ports[peer],
        }
        found.append((rank, line))
    return sorted(found, key=lambda one: (one[0], one[1]["peer"]))


def _records(each: WireCollective, ranks: int, offset_ns: int) -> list[tuple[int, dict[str, Any]]]:
    common: dict[str, Any] = {
        "event": "collective",
        "id": each.id,
        "kind": str(each.kind),
        "phase": str(each.kind),
        "group": each.group,
        "tag": each.tag,
        "size_bytes": each.size_bytes,
        "element_bytes": each.element_bytes,
        "root": each.root,
        "iteration": 0,
        "ranks": None if each.ranks == tuple(range(ranks)) else list(each.ranks),
        "waited_ns": 0,
    }
    if each.kind is Kind.SEND_RECV:
        common["peer"] = 1
    if each.uneven:
        common["uneven"] = True
    common |= {
        key: value
        for key, value in (
            ("algorithm", each.algorithm),
            ("messages", each.exchanged or None),
        )
        if value is not None
    }
    return [
        (
            rank,
            common
            | {
                "sends": [share[1:] for share in each.shares if share[0] == rank],
                "start_ns": start - offset_ns,
                "end_ns": end - offset_ns,
            },
        )
        for rank, (start, end) in each.intervals_ns.items()
    ]

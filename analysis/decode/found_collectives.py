"""Collectives of a run whose ranks told of none, found in its captures and added to their logs."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any, Final

from analysis.decode.gloo.collectives_on_wire import WireCollective, collectives_on_wire
from analysis.decode.gloo.groups_on_wire import WireGroup, groups_on_wire
from analysis.decode.gloo.rendezvous import resolve
from analysis.decode.gloo.stream import is_gloo, walk
from analysis.decode.gloo.wire_format import HELLO_BYTES
from analysis.decode.hlo.module import HloModule, read_modules
from analysis.decode.hlo.names import HloName, group_names, hlo_names, steps_of
from analysis.decode.run_capture import clock_offset_ns
from analysis.decode.tcp.assembly import connections
from analysis.decode.tcp.pcap import Packets, read_pcap
from analysis.runs.run import Run
from collectives.kinds import Kind

_NO_NAMES: Final[Mapping[tuple[int, ...], str]] = {}
_DUMP: Final = re.compile(r"--xla_dump_to=(\S+)")


def modules_of(run: Run) -> list[HloModule]:
    """The modules that XLA compiled in a run, where its program had it dumped. Raises OSError."""
    program = run.spec.workload.program
    flags = "" if program is None else program.env.get("XLA_FLAGS", "")
    named = _DUMP.search(flags)
    return [] if named is None else read_modules(run.directory / "work" / named[1])


@dataclass
class OnWire:
    """Groups and collectives of ranks that tell nothing, as captures show them. `gloo_bytes` are in
    the streams of Gloo's connections, without their greetings; `other_bytes` in those of other
    connections between ranks, by the port that was connected to."""

    groups: list[WireGroup] = field(default_factory=list)
    collectives: list[WireCollective] = field(default_factory=list)
    gloo_bytes: int = 0
    other_bytes: Counter[int] = field(default_factory=Counter)


def wire_collectives(run: Run, names: Mapping[tuple[int, ...], str] = _NO_NAMES) -> OnWire:
    """Groups and collectives that the captures of a run show, times as in the captures. `names`
    has those of groups by their ranks, ascending.

    Nothing where ranks share hosts, as the captures do not tell them apart, or where a host's ports
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
        return OnWire()
    return on_wire(files, rank_at, captured, names)


def on_wire(
    files: Sequence[Packets],
    rank_at: Mapping[int, int],
    captured: Mapping[int, frozenset[int]],
    names: Mapping[tuple[int, ...], str] = _NO_NAMES,
) -> OnWire:
    """Groups and collectives that these captures show. `rank_at` has the rank of each address,
    `captured` the numbers of the files of each rank's host."""
    shown = OnWire()
    found = []
    for connection in connections(files):
        ends = connection.forward.source.address, connection.forward.destination.address
        carried = sum(direction.length_bytes for direction in connection.directions)
        if is_gloo(connection):
            streams = walk(connection.forward, True), walk(connection.backward, False)
            resolve(*streams, {})
            found.append((connection, streams))
            shown.gloo_bytes += carried - HELLO_BYTES
        elif all(address in rank_at for address in ends):
            shown.other_bytes[connection.forward.destination.port] += carried
    groups = groups_on_wire(found, rank_at, len(rank_at))
    taken: set[str] = set()
    for group in groups:
        group.axes = names.get(tuple(sorted(group.ranks)))
        if group.axes is not None and group.name != "default" and group.axes not in taken:
            taken.add(group.axes)
            group.name = group.axes
    shown.groups = groups
    shown.collectives = [each for group in groups for each in collectives_on_wire(group, captured)]
    return shown


def add_found_collectives(run: Run) -> bool:
    """Append to `ranks/NNN.jsonl` what the captures show and no rank told of: collectives, or where
    ranks told of theirs, what went over other connections; returns whether anything was appended.
    Raises CaptureFormatError, RunError, OSError."""
    if not run.captures:
        return False
    if any(log.observed or log.collectives for log in run.ranks):
        return _add_other_connections(run)
    modules = modules_of(run)
    shown = wire_collectives(run, group_names(modules))
    found = shown.collectives
    names = hlo_names(found, modules)
    offset_ns = clock_offset_ns(run) or 0
    lines: dict[int, list[dict[str, Any]]] = defaultdict(list)
    lines[0].append(
        {
            "event": "captured",
            "gloo_bytes": shown.gloo_bytes,
            "row_bytes": sum(each.stream_bytes for each in found),
            "other_bytes": {str(port): many for port, many in shown.other_bytes.items()},
            "named": len(names),
        }
    )
    for group in shown.groups:
        for rank, line in _ports(group):
            lines[rank].append(line)
        for rank in group.ranks:
            line = {"event": "group", "name": group.name, "ranks": list(group.ranks)}
            axes = None if group.axes is None else group.axes.split("@")[0]
            lines[rank].append(line | {"mesh": axes})
    records: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for each in found:
        for rank, line in _records(each, len(run.ranks), offset_ns):
            name = names.get((each.group, each.id))
            records[rank].append(line if name is None else line | _named(each, name, line))
    steps = steps_of(names)
    for rank, own in records.items():
        own.sort(key=lambda line: (line["end_ns"], line["start_ns"], line["id"]))
        ends = [line["end_ns"] for line in own]
        # A rank can have waited only for what was over when it began the next one.
        for place, line in enumerate(own):
            line["known"] = bisect_right(ends, line["start_ns"], hi=place)
        marked = [(one.start_ns, one.end_ns) for one in run.ranks[rank].iterations]
        lines[rank] += own
        if not marked and steps is not None:
            marked = _executions(own, steps)
            lines[rank] += [
                {"event": "iteration", "index": number, "start_ns": start_ns, "end_ns": end_ns}
                for number, (start_ns, end_ns) in enumerate(marked)
            ]
        for line in own:
            # Before, between and after steps it is counted to the next one.
            line["iteration"] = bisect_left([end for _, end in marked], line["end_ns"])
            line.pop("execution", None)
    for rank, of_rank in lines.items():
        with (run.directory / "ranks" / f"{rank:03d}.jsonl").open("a") as file:
            file.write("".join(json.dumps(x, separators=(",", ":")) + "\n" for x in of_rank))
    return True


def _add_other_connections(run: Run) -> bool:
    """Append to rank 0's log what connections between ranks carried that are neither Gloo's nor in
    the ranks' logs, if any did."""
    address = {log.rank: int(IPv4Address(log.address)) for log in run.ranks}
    told = {
        frozenset({(address[log.rank], each.port), (address[each.peer], each.peer_port)})
        for log in run.ranks
        for each in log.connections
    }
    shown = OnWire()
    for connection in connections([read_pcap(path) for path in run.captures]):
        ends = connection.forward.source, connection.forward.destination
        if not all(end.address in address.values() for end in ends):
            continue
        carried = sum(direction.length_bytes for direction in connection.directions)
        if is_gloo(connection) or frozenset((end.address, end.port) for end in ends) in told:
            shown.gloo_bytes += carried
        else:
            shown.other_bytes[ends[1].port] += carried
    if not shown.other_bytes.total():
        return False
    line = {"event": "captured", "row_bytes": shown.gloo_bytes, "gloo_bytes": shown.gloo_bytes}
    line |= {"other_bytes": {str(port): many for port, many in shown.other_bytes.items()}}
    with (run.directory / "ranks" / "000.jsonl").open("a") as file:
        file.write(json.dumps(line | {"named": 0}, separators=(",", ":")) + "\n")
    return True


def _named(each: WireCollective, name: HloName, line: Mapping[str, Any]) -> dict[str, Any]:
    """A line's keys in the program's own words: the instruction in its id, and where it is asked
    for as its phase. XLA waits for each on a processor."""
    number = each.id.removeprefix(f"{each.group}.").split(".", 1)[0]
    return {
        "id": f"{each.group}.{number}.{name.collective.name}",
        "phase": name.collective.op_name or each.kind,
        "execution": (name.module, name.execution),
        "waited_ns": line["end_ns"] - line["start_ns"],
        "waits": [(line["start_ns"], line["end_ns"])],
    }


def _executions(lines: Sequence[dict[str, Any]], module: str) -> list[tuple[int, int]]:
    """From when to when a rank ran a module, each time."""
    spans: dict[int, tuple[int, int]] = {}
    for line in lines:
        ran, number = line.get("execution", (None, 0))
        if ran == module:
            begun, ended = spans.get(number, (line["start_ns"], line["end_ns"]))
            spans[number] = min(begun, line["start_ns"]), max(ended, line["end_ns"])
    return [spans[number] for number in sorted(spans)]


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

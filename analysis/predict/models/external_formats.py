"""Readers of other simulators' output: ASTRA-sim, ns-3 flow completion times, LogGOPSim, CSV."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from collectives.call import CollectiveCall
from collectives.kinds import KINDS, Kind, least_total_bytes


class ExternalFormatError(ValueError):
    """A file that is not what it was said to be; the message has the line."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A duration, and what the file says it is of; None where it does not say.

    `moved_bytes` is the sum over all messages and `fan_out` the most destinations that a sender
    has, from files that list messages rather than collectives.
    """

    duration_ns: float
    name: str | None = None
    kind: str | None = None
    size_bytes: int | None = None
    ranks: int | None = None
    moved_bytes: int | None = None
    fan_out: int | None = None

    @property
    def of_whole_workload(self) -> bool:
        """Whether the file says nothing of what was timed."""
        return self.name is None and self.kind is None and self.moved_bytes is None

    def describes(self, call: CollectiveCall) -> bool:
        """Whether this is `call` by kind and size, or by the messages that it must consist of."""
        if self.kind is not None:
            return (
                self.kind == call.kind
                and self.size_bytes == call.size_bytes
                and self.ranks in (None, call.world)
            )
        if self.moved_bytes is None or self.ranks != call.world:
            return False
        expected, fan_out = _messages(call)
        close = abs(self.moved_bytes - expected) <= 0.01 * expected
        return close and (self.fan_out == fan_out or fan_out is None)


_FAN_OUT_OPEN = frozenset({Kind.BROADCAST, Kind.REDUCE, Kind.GATHER, Kind.SCATTER})


def _messages(call: CollectiveCall) -> tuple[float, int | None]:
    """(bytes over all messages, most destinations of a sender) whatever sensible algorithm sends.

    Rings have one destination; None where algorithms differ.
    """
    if call.kind == Kind.BARRIER:
        return 0.0, None
    fan_out = call.world - 1 if call.kind == Kind.ALL_TO_ALL else 1
    return least_total_bytes(call.shape), None if call.kind in _FAN_OUT_OPEN else fan_out


_FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles, exposed communication (\d+) cycles")
_NODE_EVENT = re.compile(
    r"\b(issue|callback),\s*sys->id=(\d+),\s*tick=(\d+),\s*node->id=(\d+),\s*node->name=([^,\s]+)"
)


def read_astra_log(path: Path) -> list[Timing]:
    """ASTRA-sim 2.x's standard output or log; one cycle is one nanosecond.

    The slowest rank's cycles are the workload's. Where the log was written at debug level, a node
    takes from its last issue to its last callback over all ranks, under its name.
    """
    cycles: list[int] = []
    issued: dict[str, list[int]] = defaultdict(list)
    ended: dict[str, list[int]] = defaultdict(list)
    for line in _lines(path):
        if finished := _FINISHED.search(line):
            cycles.append(int(finished[2]))
        elif event := _NODE_EVENT.search(line):
            (issued if event[1] == "issue" else ended)[event[5]].append(int(event[3]))
    if not cycles:
        raise ExternalFormatError(
            "no line 'sys[I] finished, C cycles, exposed communication E cycles' in it; is this "
            "the output of ASTRA-sim 2.x, and did the simulation finish?"
        )
    nodes = [
        Timing(max(ended[name]) - max(starts), name=name, ranks=len(cycles))
        for name, starts in issued.items()
        if ended.get(name)
    ]
    return [Timing(max(cycles), ranks=len(cycles)), *nodes]


def read_flow_completions(path: Path) -> list[Timing]:
    """Flow completion times as HPCC's ns-3 writes them: a flow a line, times in nanoseconds.

    `sip dip sport dport size start fct [standalone fct]`, addresses in hexadecimal. A collective is
    a set of flows with no moment between them at which none is under way.
    """
    flows = []
    for number, line in enumerate(_lines(path), start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) < 7:
            raise ExternalFormatError(
                f"line {number}: found {len(fields)} fields, expected "
                "'sip dip sport dport size start_ns fct_ns'"
            )
        try:
            source, destination = int(fields[0], 16), int(fields[1], 16)
            size, start, duration = (int(field) for field in fields[4:7])
        except ValueError:
            raise ExternalFormatError(
                f"line {number}: addresses must be hexadecimal and size, start and fct whole "
                f"numbers, found {line.strip()!r}"
            ) from None
        if size < 0 or duration < 0:
            raise ExternalFormatError(f"line {number}: size and fct cannot be negative")
        flows.append((start, start + duration, source, destination, size))
    if not flows:
        raise ExternalFormatError("no flows in it")
    flows.sort()
    bursts: list[list[tuple[int, int, int, int, int]]] = []
    busy_until = -1
    for flow in flows:
        # Back to back: the next step of a ring starts when the one before it has ended.
        if not bursts or flow[0] > busy_until:
            bursts.append([])
        bursts[-1].append(flow)
        busy_until = max(busy_until, flow[1])
    return [_burst(burst) for burst in bursts]


def _burst(flows: list[tuple[int, int, int, int, int]]) -> Timing:
    peers: dict[int, set[int]] = defaultdict(set)
    for _, _, source, destination, _ in flows:
        peers[source].add(destination)
    hosts = set(peers).union(*peers.values())
    return Timing(
        max(end for _, end, *_ in flows) - flows[0][0],
        ranks=len(hosts),
        moved_bytes=sum(size for *_, size in flows),
        fan_out=max(len(found) for found in peers.values()),
    )


_HOST = re.compile(r"^Host (\d+): (\d+)\s*$")
_MAXIMUM = re.compile(r"Maximum finishing time at host \d+: (\d+)")


def read_loggopsim(path: Path) -> list[Timing]:
    """LogGOPSim's standard output: `Host I: T` up to 16 hosts, else `Maximum finishing time ...`.

    Times are in the unit of its parameters, nanoseconds by default.
    """
    hosts, maximum = [], None
    for line in _lines(path):
        if host := _HOST.match(line):
            hosts.append(int(host[2]))
        elif found := _MAXIMUM.search(line):
            maximum = int(found[1])
    if maximum is not None:
        return [Timing(maximum)]
    if not hosts:
        raise ExternalFormatError(
            "neither 'Host I: T' nor 'Maximum finishing time at host' in it; is this LogGOPSim's "
            "output, and did the simulation finish?"
        )
    return [Timing(max(hosts), ranks=len(hosts))]


_UNITS = {"duration_ns": 1.0, "duration_us": 1e3, "duration_ms": 1e6, "duration_s": 1e9}
_COLUMNS = ("kind", "size_bytes", "ranks", "name", *_UNITS)


def read_csv(path: Path) -> list[Timing]:
    """A table with a heading: `duration_ns` (or _us, _ms, _s), and `kind`, `size_bytes`, `ranks` or
    `name`, whatever of them is known."""
    lines = _lines(path)
    reader = csv.DictReader(lines)
    heading = [column.strip() for column in reader.fieldnames or []]
    unknown = [column for column in heading if column not in _COLUMNS]
    unit = next((column for column in heading if column in _UNITS), None)
    if unit is None or unknown:
        problem = f"unknown column {unknown[0]!r}" if unknown else "no duration column"
        raise ExternalFormatError(f"line 1: {problem}; columns are {', '.join(_COLUMNS)}")
    reader.fieldnames = heading
    timings = []
    for row in reader:
        where = f"line {reader.line_num}"
        try:
            duration = float(row[unit] or "") * _UNITS[unit]
            size = int(row["size_bytes"]) if row.get("size_bytes") else None
            ranks = int(row["ranks"]) if row.get("ranks") else None
        except (ValueError, TypeError):
            raise ExternalFormatError(f"{where}: not a number in {dict(row)}") from None
        kind = (row.get("kind") or "").strip() or None
        if kind is not None and kind not in KINDS:
            raise ExternalFormatError(f"{where}: kind {kind!r}, allowed {', '.join(KINDS)}")
        if not 0 <= duration < float("inf"):
            raise ExternalFormatError(f"{where}: duration {row[unit]!r} is not a duration")
        name = (row.get("name") or "").strip() or None
        timings.append(Timing(duration, name, kind, size, ranks))
    if not timings:
        raise ExternalFormatError("no rows in it")
    return timings


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except UnicodeDecodeError as error:
        raise ExternalFormatError(f"not a text file: {error.reason}") from None

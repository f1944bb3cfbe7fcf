"""Long streams over RoCE side by side, in the virtual kernel: what each got, and when."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from emulator.rdma.compiled import verbs_library
from testing.kept_runs import ROOT, kept_run
from topologies.spec.spec import parse_spec
from topologies.spec.transports.roce.section import RoceTransport

_PROCESS = ROOT / "testing" / "roce_stream_process.py"


@dataclass(frozen=True, slots=True)
class Flow:
    """WRITEs of `message_bytes` each from one rank to another, from `start_ns` on."""

    source: int
    destination: int
    size_bytes: int
    message_bytes: int = 262_144
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """The outcome of a flow, times after the origin of all: when each message was acknowledged."""

    flow: Flow
    began_ns: int
    acknowledged_ns: tuple[int, ...]

    @property
    def duration_ns(self) -> int:
        return self.acknowledged_ns[-1] - self.began_ns

    def bytes_between(self, begin_ns: int, end_ns: int) -> float:
        """Acknowledged bytes; a message that began or ended outside counts with its part."""
        found = 0.0
        for before, after in pairwise((self.began_ns, *self.acknowledged_ns)):
            inside = min(after, end_ns) - max(before, begin_ns)
            if after > before and inside > 0:
                found += self.flow.message_bytes * inside / (after - before)
        return found


@dataclass(frozen=True, slots=True)
class Streams:
    """All flows of a run, and its directory."""

    flows: tuple[Stream, ...]
    directory: Path
    origin_ns: int

    def shares_bps(self, begin_ns: int, end_ns: int) -> list[float]:
        """The goodput of each flow between two times."""
        span = end_ns - begin_ns
        return [8e9 * each.bytes_between(begin_ns, end_ns) / span for each in self.flows]

    @property
    def result(self) -> Any:
        return json.loads((self.directory / "result.json").read_text())

    def links(self) -> list[dict[str, Any]]:
        """The counters of all ports."""
        return [json.loads(line) for line in (self.directory / "links.jsonl").open()]

    def queue(self, port: str) -> list[tuple[int, int]]:
        """(time after the origin, backlog in bytes) of a port, where it was sampled."""
        found = [json.loads(line) for line in (self.directory / "ports.jsonl").open()]
        return [
            (time_ns - self.origin_ns, backlog_bytes)
            for each in found
            if each["port"] == port
            for time_ns, backlog_bytes in zip(each["times_ns"], each["backlog_bytes"], strict=True)
        ]


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness (DEC TR-301, 1984)."""
    return sum(shares) ** 2 / (len(shares) * sum(each**2 for each in shares))


def run_streams(text: str, flows: Sequence[Flow], runs: Path) -> Streams:
    """Run flows on the fabric and transport of a spec that has no workload, or find the run below
    `runs`. Raises CalledProcessError."""
    ranks = 1 + max(max(flow.source, flow.destination) for flow in flows)
    runs.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(repr(flows).encode()).hexdigest()[:12]
    told = runs / f"flows-{name}.json"
    told.write_text(json.dumps([asdict(flow) for flow in flows]))
    transport = parse_spec(text + _workload(["true"], ranks)).transport
    assert isinstance(transport, RoceTransport)
    argv = [
        *(sys.executable, "-S", str(_PROCESS), str(verbs_library())),
        *(str(transport.path_mtu_bytes), str(transport.timeout_exponent)),
        *(str(transport.retry_count), str(told.resolve())),
    ]
    directory = kept_run(text + _workload(argv, ranks), runs)
    streams: dict[int, Stream] = {}
    origin = 0
    for said_by in sorted((directory / "ranks").glob("*.out")):
        for line in said_by.read_text().splitlines():
            said = json.loads(line)
            origin = said["origin_ns"]
            times = tuple(each - origin for each in said["acknowledged_ns"])
            streams[said["flow"]] = Stream(flows[said["flow"]], said["began_ns"] - origin, times)
    return Streams(tuple(streams[n] for n in range(len(flows))), directory, origin)


def _workload(argv: Sequence[str], ranks: int) -> str:
    words = json.dumps(list(argv))
    return f"\nworkload: {{kind: command, ranks: {ranks}, observe: false, argv: {words}}}\n"

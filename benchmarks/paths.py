"""Collectives of real ranks by fabric, transport and routing kind, with what `packet` says of each.

    .venv/bin/python -m benchmarks.paths --rows DIR

A table for each collective. The collectives of a row's fabric, transport and routing are one run
in the virtual kernel, one after the other; a step of DLRM is a run of its own. All links have 100
Gb/s and 500 ns, queues 400 KB. Rows that were made are kept in DIR, a file for each run, and are
not made again, so what was cut short goes on. `--read` prints those that are there.

By collective, from the captures of hosts and the samples of ports: "imbalance" is that of the worst
group of equal ports; "late" is the share of packets that arrived behind later ones of their flow
though they were sent once; "behind" is how many of those at most; "again" are packets that were
sent a second time; "lost" those that ports dropped. `packet` knows the run's ports, and nothing
else of it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.decode.run_capture import load_capture
from analysis.metrics.ecmp import ecmp_groups
from analysis.metrics.packets import (
    PayloadPackets,
    reordered,
    reordering_extents,
    sent_again,
    sent_and_received,
)
from analysis.runs.run import Run
from analysis.runs.samples.ports import PortSeries, port_series
from emulator.prepared_guest import guest_prepared
from emulator.ranks.launcher import RankFailed
from emulator.session import SessionFailed
from emulator.virtual.building.build import ensure_kernel
from groundwire.pipeline import run, silent
from topologies.spec.spec import Spec, parse_spec

FABRICS = {
    "k=4": "kind: fat-tree, k: 4",
    "k=4, 2:1": "kind: fat-tree, k: 4, links: {agg-core: {rate: 50Gbps}}",
    "leaf-spine": "kind: leaf-spine, leaves: 4, spines: 4, hosts_per_leaf: 4",
    "leaf-spine, 2:1": "kind: leaf-spine, leaves: 4, spines: 2, hosts_per_leaf: 4",
    "k=8": "kind: fat-tree, k: 8",
}
ROUTINGS = {
    "static": "static",
    "ecmp": "ecmp",
    "spray, random": "{kind: spray, choose: random}",
    "spray, round robin": "{kind: spray, choose: round-robin}",
    "spray, least of two": "{kind: spray, choose: least-of-two}",
    "spray, least queue": "{kind: spray, choose: least-queue}",
    "flowlet, 50 us": "{kind: flowlet, gap: 50us}",
    "adaptive": "adaptive",
    "source": "source",
    "srv6": "srv6",
}
"""All kinds but `weighted`, which is `ecmp` where all next hops are worth as much."""
TRANSPORTS = {
    "TCP": "{kind: tcp}",
    "TCP, 4 sockets": "{kind: tcp, connections: 4}",
    "MPTCP, 4 subflows": "{kind: mptcp, subflows: 4}",
    "DCTCP": "{kind: tcp, congestion_control: dctcp}",
    "RoCE, go-back-N": "{kind: roce, path_mtu: 4096}",
    "RoCE, selective": "{kind: roce, path_mtu: 4096, loss_recovery: selective-repeat}",
    "MRC": "{kind: mrc}",
    "MRC, NSCC": "{kind: mrc, congestion_control: nscc}",
}
QUEUES = {
    "DCTCP": "{kind: dctcp, k: 100KB, buffer: 400KB}",
    "MRC": "{kind: dctcp, k: 100KB, buffer: 400KB, trim: true}",
    "MRC, NSCC": "{kind: dctcp, k: 100KB, buffer: 400KB, trim: true}",
}
_QUEUE = "{kind: droptail, buffer: 400KB}"
DLRM = "DLRM step"
OPERATIONS = {
    "all-to-all": "{{kind: all_to_all, size: {size}, program: {{algorithm: direct}}}}",
    "ring": "{{kind: all_reduce, size: {size}, program: {{algorithm: ring}}}}",
    "hierarchical": "{{kind: all_reduce, size: {size}, program: {{algorithm: hierarchical, "
    "dimensions: [4, {groups}], inside: direct, across: ring}}}}",
    "tree": "{{kind: all_reduce, size: {size}, program: {{algorithm: double-binary-tree, "
    "chunks: 4}}}}",
}
_DLRM = (
    "{{kind: dlrm, ranks: {ranks}, iterations: 1, batch_size: 128, sparse_features: 16, "
    "bottom_mlp: [256, 64], top_mlp: [512, 256, 1], bucket: 500KB}}"
)
_SPEC = """
name: paths
fabric: {{{fabric}, link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}}, routing: {routing},
  queue: {queue}}}
transport: {transport}
workload: {workload}
collectives:
  backend: programs
  all_to_all: {{algorithm: direct}}
  all_reduce: {{algorithm: ring}}
capture: {{points: [hosts]}}
counters: {{interval: 20us}}
predict: [packet]
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A run, by the names of its parts: of all `OPERATIONS`, each with `size` a rank, or of a step
    of DLRM."""

    dlrm: bool
    fabric: str
    transport: str
    routing: str
    ranks: int
    size: str

    @property
    def name(self) -> str:
        """That of its file."""
        work = "dlrm" if self.dlrm else self.size
        parts = (self.fabric, self.ranks, self.transport, self.routing, work)
        return "-".join(str(each).replace(", ", "-").replace(" ", "-") for each in parts)

    @property
    def _queue(self) -> str:
        """Ports do not cut packets that are wrapped."""
        queue = QUEUES.get(self.transport, _QUEUE)
        return queue.replace(", trim: true", "") if self.routing == "srv6" else queue

    def spec(self) -> Spec:
        """Raises SpecError."""
        told = {"size": self.size, "groups": self.ranks // 4}
        operations = ", ".join(each.format(**told) for each in OPERATIONS.values())
        plain = f"{{kind: collectives, ranks: {self.ranks}, operations: [{operations}]}}"
        text = _SPEC.format(
            fabric=FABRICS[self.fabric],
            routing=ROUTINGS[self.routing],
            queue=self._queue,
            transport=TRANSPORTS[self.transport],
            workload=_DLRM.format(ranks=self.ranks) if self.dlrm else plain,
        )
        return parse_spec(text)


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of a collective. `predicted_us` is None where `packet` refuses; `imbalance` is
    None where no group of equal ports sent anything."""

    us: float
    predicted_us: float | None
    imbalance: float | None
    late_share: float
    behind: int
    again: int
    lost: int

    @property
    def cells(self) -> tuple[str, ...]:
        """As text."""
        beside = "refused"
        if self.predicted_us is not None:
            beside = f"{self.predicted_us / self.us - 1:+.1%}"
        return (
            f"{self.us:,.0f}",
            beside,
            "" if self.imbalance is None else f"{self.imbalance:.2f}",
            f"{self.late_share:.1%}" if self.late_share else "0",
            *(f"{each:,}" for each in (self.behind, self.again, self.lost)),
        )


class Seen:
    """A run's packets and ports. Raises RuntimeError for a run that is not valid."""

    def __init__(self, made: Run) -> None:
        if not made.result["valid"]:
            raise RuntimeError(f"{made.directory}: not valid: {made.result['invalid_reasons']}")
        capture = load_capture(made)
        assert capture is not None
        connections = [each.connection for each in capture.attribution.connections]
        self._sent, self._received = sent_and_received(capture.files, connections)
        self._offset_ns = capture.clock_offset_ns
        self._again = sent_again(self._sent)
        self._late = reordered(self._received, self._sent)
        self._behind = np.zeros(len(self._late), dtype=np.int64)
        self._behind[self._late] = reordering_extents(self._received, self._late)
        self._ports = {each.port: each for each in port_series(made)}
        self._groups = [[p.record.port for p in each.ports] for each in ecmp_groups(made)]

    def row(self, begin_ns: int, end_ns: int, entry: Mapping[str, Any]) -> Row:
        """A row of the time between, which is on the clock of the logs. `entry` has the time that
        it took, and what was predicted."""

        def inside(packets: PayloadPackets) -> Any:
            at = packets.time_ns - self._offset_ns
            return (at >= begin_ns) & (at <= end_ns)

        sent, received = inside(self._sent), inside(self._received)
        sums = [
            [self._rise(port, "sent_bytes", begin_ns, end_ns) for port in group]
            for group in self._groups
        ]
        uneven = [max(each) * len(each) / sum(each) for each in sums if sum(each)]
        predicted_ns = entry["predicted"].get("packet", {}).get("duration_ns")
        return Row(
            us=entry["duration_ns"] / 1000,
            predicted_us=None if predicted_ns is None else predicted_ns / 1000,
            imbalance=max(uneven, default=None),
            late_share=float(self._late[received].mean()) if received.any() else 0.0,
            behind=int(self._behind[received].max(initial=0)),
            again=int(self._again[sent].sum()),
            lost=sum(self._rise(port, "drops", begin_ns, end_ns) for port in self._ports),
        )

    def _rise(self, port: str, column: str, begin_ns: int, end_ns: int) -> int:
        """How much a count of a port rose. Between two collectives nothing is sent for longer than
        a sample's interval."""
        series = self._ports.get(port)
        if series is None:
            return 0
        return _at(series, column, end_ns + series.interval_ns) - _at(series, column, begin_ns)


def _at(series: PortSeries, column: str, time_ns: int) -> int:
    number = int(np.searchsorted(series.times_ns, time_ns, "right"))
    return int(getattr(series, column)[number - 1]) if number else 0


def rows_of(case: Case, made: Run) -> dict[str, Row]:
    """By the name of the collective. Raises RuntimeError."""
    seen, result = Seen(made), made.result
    collectives = result["collectives"]
    if case.dlrm:
        began = min(each["start_ns"] for each in collectives)
        ended = max(each["end_ns"] for each in collectives)
        return {DLRM: seen.row(began, ended, result["iterations"][0])}
    return {
        name: seen.row(each["start_ns"], each["end_ns"], each)
        for name, each in zip(OPERATIONS, collectives, strict=True)
    }


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """In the order of the tables."""
    kinds = [False] * (not options.only_dlrm) + [True] * (not options.no_dlrm)
    for dlrm, fabric, transport, routing in itertools.product(
        kinds, options.fabrics, options.transports, options.routings
    ):
        if transport.startswith("MRC") and routing not in ("ecmp", "source", "srv6"):
            continue  # its entropy values are ports, which others do not look at
        yield Case(dlrm, fabric, transport, routing, options.ranks, options.size)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, required=True, metavar="DIR")
    parser.add_argument("--read", action="store_true", help="run nothing")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--only-dlrm", action="store_true", help="no other collectives")
    choice.add_argument("--no-dlrm", action="store_true", help="no steps of DLRM")
    even = [each for each in FABRICS if each != "k=8"]
    parser.add_argument("--fabrics", nargs="*", choices=FABRICS, default=even, metavar="NAME")
    for name, known in (("transports", TRANSPORTS), ("routings", ROUTINGS)):
        default = list(known)
        parser.add_argument(f"--{name}", nargs="*", choices=known, default=default, metavar="NAME")
    parser.add_argument("--ranks", type=int, default=16, metavar="N")
    parser.add_argument("--size", default="1MB", help="of each rank", metavar="SIZE")
    options = parser.parse_args(arguments)
    wanted = list(cases(options))
    if not options.read:
        _make([each for each in wanted if not _file(options.rows, each).exists()], options.rows)
    for name in [*OPERATIONS] * (not options.only_dlrm) + [DLRM] * (not options.no_dlrm):
        _print(name, [each for each in wanted if each.dlrm == (name == DLRM)], options.rows)


def _file(rows: Path, case: Case) -> Path:
    return rows / f"{case.name}.json"


def _make(missing: Sequence[Case], rows: Path) -> None:
    rows.mkdir(parents=True, exist_ok=True)
    specs = [each.spec() for each in missing]
    if not specs:
        return
    with guest_prepared(ensure_kernel(lambda line: None), specs):
        for number, (case, spec) in enumerate(zip(missing, specs, strict=True), 1):
            print(f"{number} of {len(missing)}  {case.name}", file=sys.stderr, flush=True)
            directory = rows / f"{case.name}.run"
            shutil.rmtree(directory, ignore_errors=True)
            found: dict[str, Any]
            try:
                made = run(spec, kernel="virtual", out=directory, progress=silent, pages=False)
                found = {name: asdict(row) for name, row in rows_of(case, made).items()}
            except (RankFailed, SessionFailed) as failure:
                found = {"failed": str(failure)}
            _file(rows, case).write_text(json.dumps(found, indent=1) + "\n")
            shutil.rmtree(directory, ignore_errors=True)


def _print(name: str, table: Sequence[Case], rows: Path) -> None:
    print(f"\n## {name}\n")
    print(
        "| fabric | transport | routing | us | packet | imbalance | late | behind | again | lost |"
    )
    print(f"|{'---|' * 10}")
    for case in table:
        if not _file(rows, case).exists():
            continue
        found = json.loads(_file(rows, case).read_text())
        cells = ("failed",) * 7 if "failed" in found else Row(**found[name]).cells
        print(f"| {' | '.join((case.fabric, case.transport, case.routing, *cells))} |")


if __name__ == "__main__":
    main()

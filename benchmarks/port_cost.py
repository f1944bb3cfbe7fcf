"""What a packet through a port costs this machine: the port qdisc against netem.

    .venv/bin/python benchmarks/port_cost.py [--packets N] [--repeats N] [--json]

UDP through a row of 20 switches in the virtual kernel, 21 ports a packet: the processor time of the
guest (user and system) with packets less the same boot without, by packets times ports. The two
qdiscs take turns, and the fastest of each counts: whatever else runs only adds.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "queues"))

from queue_lab import ON_THE_WIRE, line, payload_of, send
from rich.console import Console
from rich.table import Table

from emulator.network import Network, NetworkOptions
from emulator.ports import NetemArrangement, PortArrangement
from emulator.queues import QueueArrangement
from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.build import ensure_kernel
from topologies.routing import compute_routes

ROOT = Path(__file__).resolve().parent.parent
HOPS, FRAME, RATE_BPS, BURST = 21, 1514, 100_000_000_000, 500
KINDS = ("gwport", "netem")


def inside(kind: str, packets: int) -> None:
    """In the guest: sends the packets over the row, and prints how many came through."""
    import socket

    fabric = line(HOPS, rate=f"{RATE_BPS}bps", delay="1us")
    arrangement: PortArrangement = (
        QueueArrangement(fabric) if kind == "gwport" else NetemArrangement()
    )
    options = NetworkOptions(arrangement=arrangement)
    with Network(fabric, compute_routes(fabric), options) as network:
        ends = []
        for node in ("a", "b"):
            with network.enter(node):
                ends.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        source, sink = ends
        sink.bind(("0.0.0.0", 5000))
        source.connect((str(fabric.by_name["b"].address), 5000))
        for first in range(0, packets, BURST):
            send(source, min(BURST, packets - first), payload_of(FRAME))
            time.sleep(BURST * (FRAME + ON_THE_WIRE) * 8 / RATE_BPS + 50e-6)
        delivered = sum(port.packets for port in network.port_counters() if port.peer == "b")
    print(json.dumps({"delivered": delivered}))


def _cpu_seconds(kernel: Path, kind: str, packets: int) -> float:
    """Processor time of one boot that sends so many packets."""
    said: list[str] = []
    argv = (sys.executable, __file__, "--inside", kind, "--packets", str(packets))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = run_guest(kernel, GuestSpec(argv, directory=ROOT), said.append, said.append)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.reason != "exited" or ended.exit_status:
        sys.exit("\n".join([f"{kind}: {ended.reason} {ended.message}", *said]))
    if json.loads(said[-1])["delivered"] < packets:
        sys.exit(f"{kind}: {said[-1]} of {packets}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def costs_us(packets: int, repeats: int) -> dict[str, float]:
    """Qdisc -> microseconds of processor time per packet and port."""
    kernel = ensure_kernel(lambda text: print(text, file=sys.stderr))
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(repeats):
        for kind in KINDS:
            for count in (0, packets):
                found.setdefault((kind, count), []).append(_cpu_seconds(kernel, kind, count))
    return {
        kind: 1e6 * (min(found[kind, packets]) - min(found[kind, 0])) / (packets * HOPS)
        for kind in KINDS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--packets", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", choices=KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.inside, arguments.packets)
        return
    costs = costs_us(arguments.packets, arguments.repeats)
    if arguments.json:
        print(json.dumps(costs))
        return
    made = Table("qdisc", "us per packet and port", "against netem")
    for kind in KINDS:
        made.add_row(kind, f"{costs[kind]:.3f}", f"{costs[kind] / costs['netem']:.2f}")
    Console().print(made)


if __name__ == "__main__":
    main()

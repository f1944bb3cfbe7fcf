"""The cost of a packet through a port on this machine: the port qdisc against netem.

    .venv/bin/python benchmarks/port_cost.py [--packets N] [--rounds N] [--json]

UDP through a row of 20 switches in the virtual kernel, 21 ports a packet: the wall time of the
guest, by packets times ports, so all that a packet does on its way is in it, forwarding too. Time
in the guest is virtual; what is read there is the host's clock.

The two qdiscs take turns on the same packets in one boot: rows of the one and of the other, made
anew each round, each measured in pieces of some 20 ms. The lowest tenth of the pieces counts, since
whatever else runs on the machine only adds; the spread is printed beside it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import socket
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from emulator.network.network import Network, NetworkOptions
from emulator.ports.arrangement import NetemArrangement, PortArrangement
from emulator.ports.own_queues import QueueArrangement
from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.build import ensure_kernel
from testing.queue_lab import ON_THE_WIRE, line, payload_of, send
from topologies.routing.routes import compute_routes

ROOT = Path(__file__).resolve().parent.parent
HOPS, FRAME, RATE_BPS, BURST = 21, 1514, 100_000_000_000, 500
KINDS = ("gwport", "netem")
PIECES = 40
_SO_SNDBUFFORCE = 32


class HostClock:
    """Microseconds of the host's clock, read in the guest: the page of old system calls at this
    address is the host's (arch/x86/entry/vsyscall)."""

    def __init__(self) -> None:
        self._time = (ctypes.c_long * 2)()
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        self._gettimeofday = prototype(0xFFFFFFFFFF600000)

    def __call__(self) -> int:
        self._gettimeofday(self._time, None)
        seconds, microseconds = self._time
        return seconds * 10**6 + microseconds


def inside(packets: int, rounds: int) -> None:
    """In the guest: prints the microseconds of every piece, by qdisc."""
    read = HostClock()
    took_us: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for turn in range(rounds):
        for kind in KINDS if turn % 2 else reversed(KINDS):
            took_us[kind] += _pieces(kind, packets, read)
    print(json.dumps(took_us))


def _pieces(kind: str, packets: int, read: HostClock) -> list[int]:
    fabric = line(HOPS, rate=f"{RATE_BPS}bps", delay="1us")
    arrangement: PortArrangement = (
        QueueArrangement(fabric) if kind == "gwport" else NetemArrangement()
    )
    options = NetworkOptions(arrangement=arrangement)
    found = []
    with Network(fabric, compute_routes(fabric), options) as network:
        with network.enter("a"):
            source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with network.enter("b"):
            sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # netem takes packets from their socket as it queues them, a port when they have been sent:
        # a sender that sleeps for want of room would be measured with the one and not the other.
        source.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 1 << 29)
        sink.bind(("0.0.0.0", 5000))
        source.connect((str(fabric.by_name["b"].address), 5000))
        for _ in range(1 + PIECES):  # the first one finds everything cold
            start = read()
            for _ in range(packets // BURST):
                send(source, BURST, payload_of(FRAME))
                time.sleep(BURST * (FRAME + ON_THE_WIRE) * 8 / RATE_BPS + 50e-6)
            found.append(read() - start)
        sent = (1 + PIECES) * (packets // BURST) * BURST
        delivered = sum(port.packets for port in network.port_counters() if port.peer == "b")
    if delivered < sent:
        sys.exit(f"{kind}: {delivered} of {sent} packets came through")
    return found[1:]


def costs_us(packets: int, rounds: int) -> dict[str, list[float]]:
    """Qdisc -> microseconds of wall time per packet and port, of every piece, ascending."""
    kernel = ensure_kernel(lambda text: print(text, file=sys.stderr))
    said: list[str] = []
    argv = (sys.executable, __file__, "--inside", f"--packets={packets}", f"--rounds={rounds}")
    ended = run_guest(kernel, GuestSpec(argv, directory=ROOT), said.append, said.append)
    if ended.reason != "exited" or ended.exit_status:
        sys.exit("\n".join([f"{ended.reason} {ended.message}", *said]))
    per_packet_and_port = 1 / (packets // BURST * BURST * HOPS)
    took_us: dict[str, list[int]] = json.loads(said[-1])
    return {kind: sorted(per_packet_and_port * us for us in took_us[kind]) for kind in KINDS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--packets", type=int, default=1_000, help="a piece, in bursts of 500")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.packets, arguments.rounds)
        return
    costs = costs_us(arguments.packets, arguments.rounds)
    deciles = {kind: statistics.quantiles(pieces, n=10) for kind, pieces in costs.items()}
    if arguments.json:
        print(json.dumps({"deciles_us": deciles, "pieces_us": costs}))
        return
    made = Table("qdisc", "us per packet and port", "10%, 50%, 90% of pieces", "against netem")
    for kind, (low, *_, high) in deciles.items():
        spread = f"{low:.3f}, {statistics.median(costs[kind]):.3f}, {high:.3f}"
        made.add_row(kind, f"{low:.3f}", spread, f"{low / deciles['netem'][0]:.3f}")
    Console().print(made)


if __name__ == "__main__":
    main()

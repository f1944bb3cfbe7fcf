"""How far the native kernel's queues (stock qdiscs) deviate from the port qdisc.

    .venv/bin/python benchmarks/stock_deviation.py [--rate-bps N] [--exact] [--json]

The same experiments in the virtual kernel: on the port qdisc and on the stock arrangement in
virtual time, where all that differs is the arrangement, and on the stock arrangement in real time
(booted without time travel), where the machine's own lateness comes on top. The link is one of
100 Gb/s and 500 ns, slowed down to `--rate-bps`, as the native kernel would run it.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from emulator.virtual.boot import GuestSpec, run_guest
from emulator.virtual.building.build import ensure_kernel
from testing.queue_lab import CE, ECT0, fabric, frame_ns, lab, line, payload_of, send, star
from testing.tcp_flows import transfer

ROOT = Path(__file__).resolve().parent.parent
FRAME = 1514
TARGET_BPS, TARGET_DELAY_NS = 100_000_000_000, 500
MODES = {
    "port qdisc": (False, True),
    "stock": (True, True),
    "stock, real time": (True, False),
}


def _delay_ns(rate_bps: int) -> int:
    """The delay of the target's link when it is slowed down to this rate."""
    return TARGET_DELAY_NS * TARGET_BPS // rate_bps


def _link(rate_bps: int, **queue: Any) -> Any:
    return line(1, rate=f"{rate_bps}bps", delay=f"{_delay_ns(rate_bps)}ns", queue=queue)


def _sleep(packets: float, rate_bps: int) -> None:
    """Until so many packets have been serialised and have come over the link, and a bit."""
    wait_ns = packets * frame_ns(FRAME, rate_bps) + 2 * _delay_ns(rate_bps)
    time.sleep(wait_ns / 1e9 + 0.005)


def idle_packet(rate_bps: int, stock: bool) -> float:
    """A full-sized packet on an idle link: its time against serialisation and propagation, %."""
    exact = frame_ns(FRAME, rate_bps) + _delay_ns(rate_bps)
    worst = 0.0
    with lab(_link(rate_bps, kind="droptail"), stock=stock) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        for _ in range(20):
            start = time.clock_gettime_ns(time.CLOCK_REALTIME)
            send(source, 1, payload_of(FRAME))
            time.sleep(1.5 * exact / 1e9 + 0.005)
            error = (sink.drain()[0].time_ns - start) / exact - 1
            worst = max(worst, error, key=abs)
    return 100 * worst


def train(rate_bps: int, stock: bool) -> float:
    """500 packets in a row: the time from the first to the last one against serialisation, %."""
    with lab(_link(rate_bps, kind="droptail"), stock=stock) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        send(source, 500, payload_of(FRAME))
        _sleep(750, rate_bps)
        times = [p.time_ns for p in sink.drain()]
    return 100 * ((times[-1] - times[0]) / (499 * frame_ns(FRAME, rate_bps)) - 1)


def goodput(rate_bps: int, stock: bool) -> float:
    """A TCP flow's goodput against what headers leave of the rate, %."""
    with lab(_link(rate_bps, kind="droptail"), stock=stock) as it:
        (flow,) = transfer(it, [("a", "b")], rate_bps // 16)
    return 100 * (flow.steady_bps() / (rate_bps * (1500 - 52) / (1500 + 38)) - 1)


def buffer(rate_bps: int, stock: bool) -> float:
    """Packets that a buffer of 50 holds beside the one in transmission, less 50."""
    with lab(_link(rate_bps, kind="droptail", buffer=50 * FRAME), stock=stock) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        send(source, 200, payload_of(FRAME))
        _sleep(80, rate_bps)
        return len(sink.drain()) - 1 - 50


def red_marks(rate_bps: int, stock: bool) -> float:
    """Packets marked by RED (weight 1) in bursts of 200, against the line's expectation, %."""
    kmin, kmax, pmax, bursts = 50 * FRAME, 250 * FRAME, 0.2, 20
    queue = {"kind": "red", "kmin": kmin, "kmax": kmax, "pmax": pmax, "weight": 1}
    marked = 0
    with lab(_link(rate_bps, buffer=400 * FRAME, **queue), stock=stock) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b", tos=ECT0)
        for _ in range(bursts):
            send(source, 200, payload_of(FRAME))
            _sleep(201, rate_bps)
            marked += sum(p.ecn == CE for p in sink.drain())
    waiting = [max(0, i - 1) * FRAME for i in range(200)]
    expected = bursts * sum(pmax * max(0, q - kmin) / (kmax - kmin) for q in waiting)
    return 100 * (marked / expected - 1)


def step_marks(rate_bps: int, stock: bool) -> float:
    """Backlog from which DCTCP's step marks a burst, less K, in packets."""
    with lab(_link(rate_bps, kind="dctcp", k=20 * FRAME), stock=stock) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b", tos=ECT0)
        send(source, 60, payload_of(FRAME))
        _sleep(61, rate_bps)
        first = min((p.sequence for p in sink.drain() if p.ecn == CE), default=math.nan)
    return first - 1 - 21  # packet i finds i - 1; more than 20 are 21


def codel_marks(rate_bps: int, stock: bool) -> float:
    """Packets that CoDel marks in a standing queue, against interval / sqrt(n) spacing, %."""
    packet_ns = frame_ns(FRAME, rate_bps)
    target, interval, count = round(5 * packet_ns), round(40 * packet_ns), 1000
    queue = {"kind": "codel", "target": f"{target}ns", "interval": f"{interval}ns"}
    with lab(_link(rate_bps, buffer=2000 * FRAME, **queue), stock=stock) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b", tos=ECT0)
        send(source, count, payload_of(FRAME))
        _sleep(1.2 * count, rate_bps)
        marked = sum(p.ecn == CE for p in sink.drain())
    # First above target after 5 packets, marking begins an interval later (RFC 8289).
    at, expected = 5 * packet_ns + interval, 0
    while at < (count - 1) * packet_ns:
        expected += 1
        at += interval / math.sqrt(expected)
    return 100 * (marked / expected - 1)


def shared_limit(rate_bps: int, stock: bool) -> float:
    """Longest queue of a shared buffer of 80 packets, alpha 1, less its half, in packets."""
    queue = {"kind": "shared", "buffer": 80 * FRAME, "alpha": 1}
    link = {"rate": f"{rate_bps}bps", "delay": f"{_delay_ns(rate_bps)}ns"}
    with lab(star(3, queues={"s": queue}, **link), stock=stock) as it:
        it.udp_sink("h2")
        for source in [it.udp_source(name, "h2") for name in ("h0", "h1")]:
            send(source, 200, payload_of(FRAME))
        _sleep(420, rate_bps)
        port = next(c for c in it.network.port_counters() if (c.node, c.peer) == ("s", "h2"))
        return (port.queue.max_backlog_bytes or 0) / FRAME - 40


def voq_share(rate_bps: int, stock: bool) -> float:
    """The share of an ingress four times as fast as the other among 400 packets let through: % -
    50."""
    links = [("h0", "s"), ("h1", "s"), ("s", "to")]
    made = fabric(
        links,
        rate=f"{rate_bps}bps",
        delay=f"{_delay_ns(rate_bps)}ns",
        rates={("h0", "s"): f"{4 * rate_bps}bps"},
        queues={"s": {"kind": "voq", "buffer": 60 * FRAME}},
    )
    with lab(made, stock=stock) as it:
        sinks = [it.udp_sink("to", 5000 + i) for i in range(2)]
        send(it.udp_source("h0", "to", 5000), 2000, payload_of(FRAME))
        send(it.udp_source("h1", "to", 5001), 500, payload_of(FRAME))
        time.sleep((400 * frame_ns(FRAME, rate_bps) + 2 * _delay_ns(rate_bps)) / 1e9)
        fast, slow = (len(sink.drain()) for sink in sinks)
        return 100 * fast / (fast + slow) - 50


@functools.cache
def _incast(rate_bps: int, stock: bool) -> dict[str, float]:
    """Four hosts send to a fifth one over lossless ports, for so long that each is paused often."""
    senders, frame = 4, frame_ns(FRAME, rate_bps)
    in_flight = round(2 * _delay_ns(rate_bps) / frame)
    count = 200 + 8 * in_flight
    # XON is so high that what a resumed sender sends comes before the last port runs dry.
    xon = (14 + in_flight) * FRAME
    queue = {"kind": "lossless", "xoff": xon + 6 * FRAME, "xon": xon, "buffer": "1GB"}
    link = {"rate": f"{rate_bps}bps", "delay": f"{_delay_ns(rate_bps)}ns"}
    with lab(star(senders + 1, queue=queue, **link), stock=stock) as it:
        sink = it.udp_sink(f"h{senders}")
        names = [f"h{i}" for i in range(senders)]
        for source in [it.udp_source(name, f"h{senders}") for name in names]:
            send(source, count, payload_of(FRAME))
        time.sleep(1.5 * senders * count * frame / 1e9 + 0.05)
        times = [p.time_ns for p in sink.drain()]
        ports = {(c.node, c.peer): c.queue for c in it.network.port_counters()}
        paused = sum(ports[name, "s"].paused_ns for name in names) / senders
        late = 0.0
        if it.network.pause_controller is not None:
            reaction = it.network.pause_controller.reaction()
            late = (reaction.worst_ns - reaction.allowed_ns) / 1000 if reaction else math.nan
    took = times[-1] - times[0]
    return {
        "lost": float(sum(queue.drops for queue in ports.values())),
        "longer": 100 * (took / ((senders * count - 1) * frame) - 1),
        "paused": 100 * paused / took,
        "late": late,
    }


def lossless_losses(rate_bps: int, stock: bool) -> float:
    """Packets that an incast from 4 hosts loses."""
    return _incast(rate_bps, stock)["lost"]


def lossless_idle(rate_bps: int, stock: bool) -> float:
    """How much longer the incast takes than its last port needs, %."""
    return _incast(rate_bps, stock)["longer"]


def lossless_paused(rate_bps: int, stock: bool) -> float:
    """Share of the incast for which a sender is paused, % (a figure, not a deviation)."""
    return _incast(rate_bps, stock)["paused"]


def lossless_late(rate_bps: int, stock: bool) -> float:
    """The worst pause against the last moment that the headroom allows, us; negative: in time."""
    return _incast(rate_bps, stock)["late"]


EXPERIMENTS: dict[str, tuple[str, Callable[[int, bool], float]]] = {
    "time of a packet on an idle link (worst of 20)": ("%", idle_packet),
    "time of 500 packets in a row": ("%", train),
    "TCP goodput": ("%", goodput),
    "drop-tail: buffer": ("packets", buffer),
    "RED: marks (standard deviation by chance: 6)": ("%", red_marks),
    "DCTCP: step": ("packets", step_marks),
    "CoDel: marks": ("%", codel_marks),
    "shared: longest queue": ("packets", shared_limit),
    "voq: share of a fast ingress": ("%", voq_share),
    "lossless: losses of an incast": ("packets", lossless_losses),
    "lossless: time of the incast": ("%", lossless_idle),
    "lossless: a sender is paused": ("% of it", lossless_paused),
    "lossless: worst pause, late by": ("us", lossless_late),
}


def inside(rate_bps: int, stock: bool) -> None:
    """In the guest: all experiments, a line of JSON."""
    print(json.dumps({name: run(rate_bps, stock) for name, (_, run) in EXPERIMENTS.items()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rate-bps", type=int, default=100_000_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--exact", action="store_true", help="leave out what runs in real time")
    parser.add_argument("--inside", choices=["port", "stock"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.rate_bps, arguments.inside == "stock")
        return
    kernel = ensure_kernel(lambda text: print(text, file=sys.stderr))
    columns: dict[str, dict[str, float]] = {}
    for mode, (stock, time_travel) in MODES.items():
        if arguments.exact and not time_travel:
            continue
        said: list[str] = []
        argv = [sys.executable, __file__, "--inside", "stock" if stock else "port"]
        guest = GuestSpec(
            (*argv, "--rate-bps", str(arguments.rate_bps)),
            directory=ROOT,
            time_travel=time_travel,
        )
        ended = run_guest(kernel, guest, said.append, said.append)
        if ended.reason != "exited" or ended.exit_status:
            sys.exit("\n".join([f"{mode}: {ended.reason} {ended.message}", *said]))
        columns[mode] = json.loads(said[-1])
    if arguments.json:
        print(json.dumps(columns, indent=1))
        return
    made = Table("deviation of", "unit", *columns)
    for name, (unit, _) in EXPERIMENTS.items():
        made.add_row(name, unit, *(f"{column[name]:+.3g}" for column in columns.values()))
    Console(width=110).print(made)


if __name__ == "__main__":
    main()

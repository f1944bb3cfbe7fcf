"""What a kernel does of a scenario whose fabric is divided among several: a program for guests.

    python cut_links.py SCENARIO...

Alone it does all of it. Prints a line of JSON per scenario, with what concerns its own nodes.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from queue_lab import ECT0, Lab, fabric, lab, line, payload_of, send

from emulator.peers import Peers, find_peers
from topologies.division import Division, Share
from topologies.fabric import Fabric
from workloads.clock import round_time_ns, sleep_until_ns

LINE_HOPS, LINE_DELAY_NS, LINE_RATE_BPS, LINE_FRAME, LINE_TRAIN = 4, 777, 33_330_000_000, 1514, 500
_LENGTH_NS = 20_000_000

Found = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """A fabric, and what its hosts do from a moment on. `play` returns what they found, by name;
    it does nothing for hosts that are not `here`."""

    fabric: Fabric
    play: Callable[[Lab, Callable[[str], bool], int], Found]


def alternating(fabric: Fabric, kernels: int) -> Division:
    """The nodes given out in turns, which cuts as many links as can be."""
    kernel_of = {node.name: i % kernels for i, node in enumerate(fabric.nodes)}
    return Division(kernels, kernel_of, min(link.delay_ns for link in fabric.links))


def _arrivals(it: Lab, here: Callable[[str], bool], start_ns: int) -> Found:
    """A train over a line, in one nanosecond."""
    sink = it.udp_sink("b") if here("b") else None
    source = it.udp_source("a", "b") if here("a") else None
    sleep_until_ns(start_ns)
    found: Found = {}
    if source is not None:
        found["sent"] = time.monotonic_ns() - start_ns
        send(source, LINE_TRAIN, payload_of(LINE_FRAME))
    sleep_until_ns(start_ns + _LENGTH_NS)
    if sink is None:
        return found
    since = start_ns + time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
    return found | {"arrivals": [(p.sequence, p.time_ns - since) for p in sink.drain()]}


def _round_trips(it: Lab, here: Callable[[str], bool], start_ns: int) -> Found:
    """A packet there, and as soon as it is there one back; ten times."""
    found: Found = {}
    if here("b"):
        sink, back = it.udp_sink("b").socket, it.udp_source("b", "a", 5001)

        def answer() -> None:
            for _ in range(10):
                back.send(sink.recv(64))

        threading.Thread(target=answer).start()
    if here("a"):
        echo, there = it.udp_sink("a", 5001).socket, it.udp_source("a", "b")
        sleep_until_ns(start_ns)
        found["round trips"] = []
        for _ in range(10):
            sent_ns = time.monotonic_ns()
            send(there, 1, 4)
            echo.recv(64)
            found["round trips"].append(time.monotonic_ns() - sent_ns)
    sleep_until_ns(start_ns + _LENGTH_NS)
    return found


def _meeting(it: Lab, here: Callable[[str], bool], start_ns: int) -> Found:
    """Three hosts send to a fourth more than its link carries, each at a pace of its own: no two
    packets come to a port at the same instant."""
    sink = it.udp_sink("sink") if here("sink") else None
    paces_ns = {"h0": 1009, "h1": 1013, "h2": 1019}
    sources = {h: it.udp_source(h, "sink", tos=ECT0) for h in paces_ns if here(h)}
    sleep_until_ns(start_ns)
    # In turns, from one thread: a kernel has one, two or all of the three.
    due = sorted((i * pace, h) for h, pace in paces_ns.items() for i in range(1, 400))
    for at_ns, host in due:
        if host in sources:
            sleep_until_ns(start_ns + at_ns)
            send(sources[host], 1, payload_of(1514), at_ns)
    sleep_until_ns(start_ns + _LENGTH_NS)
    if sink is None:
        return {}
    since = start_ns + time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
    return {"arrivals": [(p.sequence, p.time_ns - since, p.ecn) for p in sink.drain()]}


def _meeting_at(queue: Mapping[str, Any]) -> Scenario:
    links = [("h0", "s0"), ("h1", "s0"), ("h2", "s1"), ("s0", "s1"), ("s1", "sink")]
    # 12 Gb/s each, and a link of 20 Gb/s for the three of them. Those who may go on at the same
    # instant after a pause do not come to a port at the same instant.
    rates = {("h1", "s0"): "40Gbps", ("h2", "s1"): "70Gbps", ("s1", "sink"): "20Gbps"}
    return Scenario(fabric(links, delay="650ns", queue=queue, rates=rates), _meeting)


SCENARIOS = {
    "line": Scenario(
        line(LINE_HOPS, rate=f"{LINE_RATE_BPS}bps", delay=f"{LINE_DELAY_NS}ns"), _arrivals
    ),
    "round trips": Scenario(line(LINE_HOPS, delay=f"{LINE_DELAY_NS}ns"), _round_trips),
    "droptail": _meeting_at({"kind": "droptail", "buffer": "40KB"}),
    "dctcp": _meeting_at({"kind": "dctcp", "k": "15KB", "buffer": "1MB"}),
    "red": _meeting_at({"kind": "red", "kmin": "6KB", "kmax": "60KB", "buffer": "1MB"}),
    "shared": _meeting_at({"kind": "shared", "alpha": 1, "buffer": "80KB"}),
    "voq": _meeting_at({"kind": "voq", "buffer": "40KB"}),
    "lossless": _meeting_at({"kind": "lossless", "xoff": "12KB", "xon": "9KB", "buffer": "1MB"}),
}


def _run(name: str, peers: Peers | None, stage: int) -> Found:
    scenario = SCENARIOS[name]
    share = None
    if peers is not None:
        share = Share(scenario.fabric, alternating(scenario.fabric, peers.count), peers.index)

    def meet(more: int) -> None:
        if peers is not None:
            peers.meet(stage + more)

    with lab(scenario.fabric, share=share) as it:
        meet(1)
        start_ns = round_time_ns(2_000_000, 100_000_000)
        found = scenario.play(it, it.network.owns, start_ns)
        statistics = {
            f"{node}:{peer}": asdict(counted)
            for (node, peer), counted in it.all_statistics().items()
            if it.network.owns(node)
        }
        meet(2)
    return {"scenario": name, "found": found, "ports": statistics}


def main(names: list[str]) -> None:
    """Play the scenarios one after the other."""
    peers = find_peers()
    for i, name in enumerate(names):
        print(json.dumps(_run(name, peers, 2 * i)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

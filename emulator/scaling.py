"""`scale: auto`: by how much the native kernel slows the target fabric down, so that this machine
can forward every packet when it is due.

A short calibration brings the spec's own fabric up without its limits and lets all ranks send at
once: what is forwarded then, in packet-hops per second, is the machine's capacity. The factor is
what brings the most that the target fabric could carry down to a part of that.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import networkx as nx

from emulator.native_kernel import native_arrangement
from emulator.network import Network, NetworkOptions
from emulator.stock_switch import pause_scale
from topologies.build import build_fabric
from topologies.fabric import L1_OVERHEAD_BYTES, Fabric, Link
from topologies.placement import place
from topologies.queue_spec import DropTail
from topologies.routing import compute_routes
from topologies.spec import Spec

UTILISATION = 0.3
"""Of the machine's capacity that a run may use. The ranks compute on the same cores, and the
verdict allows no core to be saturated for long."""

ACKS_PER_PACKET = 0.5
"""Delayed acknowledgements (RFC 1122, section 4.2.3.2): one for every second packet."""

_CALIBRATION_S = 0.5
_WARM_UP_S = 0.2
_PATIENCE_S = 60.0
_PORT = 29600
_LARGEST = 10**6
_UNLIMITED_BPS = 10**12


@dataclass(frozen=True, slots=True)
class Calibration:
    """What this machine forwarded with all ranks busy: packets times the links each crossed."""

    packet_hops_per_s: float
    ranks: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class ScaleChoice:
    """A factor and where it comes from."""

    factor: int
    needed_packet_hops_per_s: float
    calibration: Calibration | None
    pauses_need: float = 1.0
    """The least factor with which the pause controller of lossless queues is in time."""

    def __str__(self) -> str:
        if self.calibration is None:
            return f"scale {self.factor}, as the spec says"
        pauses = (
            f"; pauses that are in time need {self.pauses_need:.3g}" if self.pauses_need > 1 else ""
        )
        return (
            f"scale {self.factor}: the target fabric may carry "
            f"{self.needed_packet_hops_per_s:.3g} packet-hops/s, this machine forwards "
            f"{self.calibration.packet_hops_per_s:.3g} with all {self.calibration.ranks} ranks "
            f"busy, of which {UTILISATION:.0%} are used{pauses}"
        )

    def as_dict(self) -> dict[str, object]:
        """Plain data, for environment.json."""
        return {
            "factor": self.factor,
            "needed_packet_hops_per_s": round(self.needed_packet_hops_per_s),
            "machine_packet_hops_per_s": (
                round(self.calibration.packet_hops_per_s) if self.calibration else None
            ),
        }


def choose_scale(spec: Spec) -> ScaleChoice:
    """The factor of a spec on the native kernel: its own, or for `auto` a calibrated one. Needs
    root for `auto`. Raises what Network.up raises."""
    fabric = build_fabric(spec.fabric)
    hosts = place(spec.placement, fabric, spec.workload.ranks, spec.seed)
    needed = needed_packet_hops(fabric, hosts)
    if spec.scale != "auto":
        return ScaleChoice(int(spec.scale), needed, None)
    calibration = calibrate(fabric, hosts)
    pauses_need = pause_scale(fabric)
    factor = factor_for(needed, calibration.packet_hops_per_s, pauses_need)
    return ScaleChoice(factor, needed, calibration, pauses_need)


def needed_packet_hops(fabric: Fabric, hosts: Sequence[str]) -> float:
    """The most packet-hops per second that ranks on these hosts can cause: every host sends full
    packets at the rate of its link to all the others alike, and half as many come back."""
    present = list(dict.fromkeys(hosts))
    graph = nx.Graph(fabric.graph)
    total = 0.0
    for host in present:
        links = fabric.links_of[host]
        packets = sum(
            link.rate_bps / (8 * (link.frame_bytes + L1_OVERHEAD_BYTES)) for link in links
        )
        distances = nx.single_source_shortest_path_length(graph, host)
        others = [distances[other] for other in present if other != host and other in distances]
        if others:
            total += packets * sum(others) / len(others)
    return total * (1 + ACKS_PER_PACKET)


def factor_for(needed_per_s: float, capacity_per_s: float, at_least: float = 1.0) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... with which what is needed fits into the part of the
    capacity that may be used, and not below `at_least`. Such steps, so that a machine finds the
    same factor again though it never measures the same capacity twice. Raises ValueError when even
    the largest is too small."""
    if capacity_per_s <= 0:
        raise ValueError("a machine that forwards nothing cannot emulate a network")
    wanted = max(at_least, needed_per_s / (UTILISATION * capacity_per_s))
    decade = 1
    while decade <= _LARGEST:
        for step in (1, 2, 5):
            if step * decade >= wanted and step * decade <= _LARGEST:
                return step * decade
        decade *= 10
    raise ValueError(f"a scale of {wanted:.3g} would be needed; at most {_LARGEST} is possible")


def calibrate(fabric: Fabric, hosts: Sequence[str]) -> Calibration:
    """Lets every rank stream to the next one over the fabric without delays, and counts.

    Needs root. Raises what Network.up raises, and OSError when nothing gets through.
    """
    unlimited = _without_limits(fabric)
    options = NetworkOptions(arrangement=native_arrangement(unlimited))
    with Network(unlimited, compute_routes(unlimited), options) as network:
        listeners = [_socket(network, host, _PORT + rank) for rank, host in enumerate(hosts)]
        senders = [_socket(network, host) for host in hosts]
        children: list[int] = []
        started, starting = os.pipe()
        try:
            for listener in listeners:
                listener.listen()
            for rank, listener in enumerate(listeners):
                target = listeners[(rank + 1) % len(hosts)].getsockname()
                children.append(_fork_rank(listener, senders[rank], target, starting))
            _wait_for_all(started, len(hosts))
            time.sleep(_WARM_UP_S)
            before, start = _packets(network), time.monotonic()
            time.sleep(_CALIBRATION_S)
            forwarded = _packets(network) - before
            took = time.monotonic() - start
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            for end in (*listeners, *senders):
                end.close()
            os.close(started)
            os.close(starting)
    if not forwarded:
        raise OSError("the calibration forwarded no packet")
    return Calibration(forwarded / took, len(hosts), took)


def _without_limits(fabric: Fabric) -> Fabric:
    """The same nodes and links, without delays, with plain queues, and faster than any machine."""

    def free(link: Link) -> Link:
        a, b = (replace(port, queue=DropTail()) for port in (link.a, link.b))
        return replace(link, a=a, b=b, rate_bps=_UNLIMITED_BPS, delay_ns=0)

    return replace(fabric, links=tuple(free(link) for link in fabric.links))


def _socket(network: Network, host: str, port: int = 0) -> socket.socket:
    with network.enter(host):
        made = socket.socket()
    made.bind((str(network.fabric.by_name[host].address), port))
    return made


def _wait_for_all(started: int, ranks: int) -> None:
    """Returns when every rank has sent; a machine that is busy may take a while for that."""
    deadline = time.monotonic() + _PATIENCE_S
    sending = 0
    while sending < ranks:
        if not select.select([started], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise OSError(
                f"the calibration has {sending} of {ranks} ranks sending after {_PATIENCE_S:.0f} s"
            )
        sending += len(os.read(started, ranks))


def _fork_rank(
    listener: socket.socket, sender: socket.socket, target: tuple[str, int], starting: int
) -> int:
    """A child that sends to `target` and throws away what it gets, until it is killed. It writes a
    byte to `starting` when it has sent its first block."""
    child = os.fork()
    if child:
        return child
    try:
        sender.connect(target)
        receiver, _ = listener.accept()
        threading.Thread(target=_swallow, args=(receiver,), daemon=True).start()
        block = bytes(1 << 18)
        sender.sendall(block)
        os.write(starting, b".")
        while True:
            sender.sendall(block)
    finally:
        os._exit(0)


def _swallow(receiver: socket.socket) -> None:
    buffer = bytearray(1 << 20)
    while receiver.recv_into(buffer):
        pass


def _packets(network: Network) -> int:
    return sum(port.packets for port in network.port_counters())

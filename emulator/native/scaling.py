"""`scale: auto`: the factor by which the native kernel slows the target fabric down, so that this
machine can forward every packet when it is due.

A short calibration brings the spec's own fabric up without its limits and lets all ranks send at
once. The packet-hops per second that are forwarded then are the machine's capacity. The factor
brings the most that the target fabric could carry down to a part of that capacity. Where
`groundwire doctor --measure` has found what this machine does right, that is taken instead.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import networkx as nx

from emulator.native.kernel import native_arrangement
from emulator.native.streams import streaming
from emulator.native.trust import stored_trust
from emulator.network.network import Network, NetworkOptions
from emulator.switches.stock_switch import pause_scale
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Fabric, Link
from topologies.routing.routes import compute_routes
from topologies.spec.queue_section import DropTail
from topologies.spec.spec import Spec

UTILISATION = 0.3
"""The share of the machine's capacity that a run may use. The ranks compute on the same cores, and
the verdict allows no core to be saturated for long."""

ACKS_PER_PACKET = 0.5
"""Delayed acknowledgements (RFC 1122, section 4.2.3.2): one for every second packet."""

_CALIBRATION_S = 0.5
_LARGEST_FACTOR = 10**6
_TRUSTED_SHARE = 0.5
"""The share of what was found to be right that a run may use. Streams were measured, with whatever
part of the processors they took; ranks also compute, and no core may be saturated for long."""
_LATENESS_SHARE = 0.02
"""The share of a collective's time that token buckets may give in advance: what the verdict allows
to differ (`EXPECTED_LIMIT`), less what machines add to it."""
_LONGEST_NS = 60e9
"""How long a collective may take for the timers' sake."""
_UNLIMITED_BPS = 10**12


@dataclass(frozen=True, slots=True)
class PacketRateCalibration:
    """The packets that this machine forwarded with all ranks busy: packets times the links each
    crossed."""

    packet_hops_per_s: float
    ranks: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class ScaleChoice:
    """A factor and where it comes from."""

    factor: int
    needed_packet_hops_per_s: float
    calibration: PacketRateCalibration | None
    pauses_need: float = 1.0
    """The least factor with which the pause controller of lossless queues is in time."""
    timers_need: float = 1.0
    """The least factor with which timers are a small part of each collective."""
    trusted_packet_hops_per_s: float | None = None
    """The rate that `groundwire doctor --measure` found to be right natively, instead of a
    calibration."""

    def __str__(self) -> str:
        needs = "".join(
            f"; {what} need {need:.3g}"
            for what, need in (
                ("pauses that are in time", self.pauses_need),
                ("timers that are late", self.timers_need),
            )
            if need > 1
        )
        start = (
            f"scale {self.factor}: the target fabric may carry "
            f"{self.needed_packet_hops_per_s:.3g} packet-hops/s, this machine "
        )
        if self.trusted_packet_hops_per_s is not None:
            measured = (
                f"was right with {self.trusted_packet_hops_per_s:.3g} (doctor --measure), of "
                f"which {_TRUSTED_SHARE:.0%} are used"
            )
            return start + measured + needs
        if self.calibration is None:
            return f"scale {self.factor}, as the spec says"
        return start + (
            f"forwards {self.calibration.packet_hops_per_s:.3g} with all "
            f"{self.calibration.ranks} ranks busy, of which {UTILISATION:.0%} are used (an "
            f"estimate; `groundwire doctor --measure` finds the right one){needs}"
        )

    def as_dict(self) -> dict[str, object]:
        """Plain data, for environment.json."""
        return {
            "factor": self.factor,
            "needed_packet_hops_per_s": round(self.needed_packet_hops_per_s),
            "machine_packet_hops_per_s": (
                round(self.calibration.packet_hops_per_s) if self.calibration else None
            ),
            "trusted_packet_hops_per_s": (
                round(self.trusted_packet_hops_per_s) if self.trusted_packet_hops_per_s else None
            ),
        }


def choose_scale(spec: Spec, times_ns: Sequence[float]) -> ScaleChoice:
    """The factor of a spec on the native kernel: its own, or for `auto` a calibrated one.
    `times_ns` are those of its collectives on an idle fabric, as far as they are known. Needs root
    for `auto`. Raises what Network.up raises."""
    fabric, hosts = spec.plan.fabric, spec.plan.hosts
    needed = needed_packet_hops(fabric, hosts)
    if spec.scale != "auto":
        return ScaleChoice(int(spec.scale), needed, None)
    arrangement = native_arrangement(fabric)
    pauses_need, timers_need = pause_scale(fabric), timer_scale(times_ns, arrangement.lateness_ns)
    at_least = max(pauses_need, timers_need)
    trust = stored_trust()
    trusted = trust.packet_hops_per_s(arrangement.name) if trust is not None else None
    if trusted is not None:
        factor = factor_for(needed, trusted * _TRUSTED_SHARE / UTILISATION, at_least)
        return ScaleChoice(factor, needed, None, pauses_need, timers_need, trusted)
    calibration = calibrate(fabric, hosts)
    factor = factor_for(needed, calibration.packet_hops_per_s, at_least)
    return ScaleChoice(factor, needed, calibration, pauses_need, timers_need)


def timer_scale(times_ns: Sequence[float], lateness_ns: int) -> float:
    """The least factor with which what idle links let through at once, to make up for timers that
    are late by `lateness_ns`, is a small part of the shortest collective; 1 where no times are
    known. The longest one bounds it, so that no run takes for ever."""
    known = [time_ns for time_ns in times_ns if time_ns > 0]
    if not known or not lateness_ns:
        return 1.0
    needed = lateness_ns / (_LATENESS_SHARE * min(known))
    return max(1.0, min(needed, _LONGEST_NS / max(known)))


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
    while decade <= _LARGEST_FACTOR:
        for step in (1, 2, 5):
            if step * decade >= wanted and step * decade <= _LARGEST_FACTOR:
                return step * decade
        decade *= 10
    raise ValueError(
        f"a scale of {wanted:.3g} would be needed; at most {_LARGEST_FACTOR} is possible"
    )


def calibrate(fabric: Fabric, hosts: Sequence[str]) -> PacketRateCalibration:
    """Lets every rank stream to the next one over the fabric without delays, and counts.

    Needs root. Raises what Network.up raises, and OSError when nothing gets through.
    """
    unlimited = _without_limits(fabric)
    options = NetworkOptions(arrangement=native_arrangement(unlimited))
    routes = compute_routes(unlimited)
    with Network(unlimited, routes, options) as network, streaming(network, hosts):
        before, start = _packets(network), time.monotonic()
        time.sleep(_CALIBRATION_S)
        forwarded = _packets(network) - before
        took = time.monotonic() - start
    if not forwarded:
        raise OSError("the calibration forwarded no packet")
    return PacketRateCalibration(forwarded / took, len(hosts), took)


def _without_limits(fabric: Fabric) -> Fabric:
    """The same nodes and links, without delays, with plain queues, and faster than any machine."""

    def unlimited(link: Link) -> Link:
        a, b = (replace(port, queue=DropTail()) for port in (link.a, link.b))
        return replace(link, a=a, b=b, rate_bps=_UNLIMITED_BPS, delay_ns=0)

    return replace(fabric, links=tuple(unlimited(link) for link in fabric.links))


def _packets(network: Network) -> int:
    return sum(port.packets for port in network.port_counters())

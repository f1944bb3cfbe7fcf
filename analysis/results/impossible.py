"""Times that no network can have made: shorter than what came takes on the receiver's own links.

Counted is only what every algorithm must deliver, in full frames with the smallest headers, over
all links of the receiving host together at the highest rate that they had; no latency, no competing
traffic. Gloo sends a payload when its receiver has posted the receive (gloo/transport/tcp/pair.cc,
Pair::send), so all that a rank receives in a collective comes after it posted that: the bound holds
for each rank by itself, whenever the others came. Senders are not looked at, as what they sent may
still be in their sockets when they go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from analysis.predict.engines.wire import ETHERNET_BYTES, full_frame_bytes
from analysis.runs.collectives import MeasuredCollective, collectives_of
from analysis.runs.run import Run
from collectives.kinds import least_received_bytes, least_total_bytes
from topologies.fabrics.selectors import links_between
from topologies.spec.run_sections import RateChange
from topologies.spec.scaling import slowed_rate_bps
from topologies.units import format_rate

_LEAST_HEADERS_BYTES = 40
"""IPv4 20 and TCP 20, without options (RFC 791, 9293)."""
_CLOCK_NS = 1
"""A clock that counts nanoseconds can show a time by this much shorter than it was."""


@dataclass(frozen=True, slots=True)
class ImpossibleTime:
    """A collective that was over before its bytes can have arrived.

    `rank` received `size_bytes` in `measured_ns`, which take at least `needed_ns` at `rate_bps`;
    None: all ranks together. Times and rate are of the fabric that was emulated, slowed down or
    not.
    """

    collective: MeasuredCollective
    rank: int | None
    size_bytes: int
    rate_bps: int
    measured_ns: int
    needed_ns: int

    def __str__(self) -> str:
        who = "its ranks together" if self.rank is None else f"rank {self.rank}"
        return (
            f"{self.collective.id} (iteration {self.collective.iteration}): {who} received "
            f"{self.size_bytes:,} B in {self.measured_ns:,} ns, which take at least "
            f"{self.needed_ns:,} ns on links of {format_rate(self.rate_bps)}"
        )


def impossible_times(run: Run) -> tuple[ImpossibleTime, ...]:
    """The collectives of a run that cannot have been, in order of start; of each, the rank that
    lacks most time. Raises RunError."""
    ingress = _ingress_of(run)
    found = []
    for collective in collectives_of(run):
        hosts = [run.hosts[rank] for rank in collective.ranks]
        if len(set(hosts)) < len(hosts) or collective.uneven:
            continue  # something went past the links, or nobody knows how much went where
        if collective.schedule.observed:
            continue  # MPI sends what its receiver has not asked for
        times = _impossible(collective, [ingress[host] for host in hosts])
        if times:
            found.append(max(times, key=lambda time: time.needed_ns - time.measured_ns))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Ingress:
    """What can come into a host, or into several: the sum of its links' rates and their largest
    packets. `slack_bytes` may come before its time, and each frame by `rounding_ns`."""

    rate_bps: int
    mtu_bytes: int
    slack_bytes: int = 0
    rounding_ns: int = 0

    def least_ns(self, payload_bytes: int) -> Fraction:
        """Time that a payload takes at least."""
        frames = -(-payload_bytes // (self.mtu_bytes - _LEAST_HEADERS_BYTES))
        wire_bytes = payload_bytes + frames * (_LEAST_HEADERS_BYTES + ETHERNET_BYTES)
        on_the_wire = Fraction(8 * 10**9 * (wire_bytes - self.slack_bytes), self.rate_bps)
        return max(Fraction(0), on_the_wire - frames * self.rounding_ns)


def _together(members: Sequence[Ingress]) -> Ingress:
    return Ingress(
        sum(member.rate_bps for member in members),
        max(member.mtu_bytes for member in members),
        sum(member.slack_bytes for member in members),
        max(member.rounding_ns for member in members),
    )


def _impossible(collective: MeasuredCollective, ingress: Sequence[Ingress]) -> list[ImpossibleTime]:
    """What is impossible of a collective whose members have this ingress."""
    found: list[ImpossibleTime] = []

    def check(rank: int | None, size_bytes: int, into: Ingress, measured_ns: int) -> None:
        needed = into.least_ns(size_bytes)
        if measured_ns + _CLOCK_NS <= needed:
            found.append(
                ImpossibleTime(
                    collective, rank, size_bytes, into.rate_bps, measured_ns, floor(needed)
                )
            )

    records = collective.by_rank
    for member, rank in enumerate(collective.ranks):
        received = least_received_bytes(collective.shape, member)
        check(rank, received, ingress[member], records[rank].end_ns - records[rank].start_ns)
    first_ns = min(record.start_ns for record in records.values())
    traits = collective.traits
    all_get_it = traits.reduces and not traits.rooted
    # Where switches reduce, summands need not come to ranks.
    by_hosts = not collective.schedule.aggregators
    received = least_total_bytes(collective.shape) if all_get_it and by_hosts else 0
    check(None, received, _together(ingress), collective.end_ns - first_ns)
    return found


def _ingress_of(run: Run) -> dict[str, Ingress]:
    """Host -> what can come into it, of the fabric that was emulated."""
    rates = _highest_rates(run)
    native = run.environment.kernel == "native"
    found = {}
    for host in dict.fromkeys(run.hosts):
        links = run.fabric.links_of[host]
        mtu_bytes = max(link.mtu_bytes for link in links)
        rate_bps = sum(rates[link.index] for link in links)
        # Token buckets let a frame go at once when they were idle, and what makes up for late
        # timers. The kernel's own qdiscs count whole nanoseconds a frame; the port qdisc carries
        # the fraction.
        slack_bytes = len(links) * full_frame_bytes(mtu_bytes) if native else 0
        slack_bytes += -(-rate_bps * run.environment.lateness_ns // (8 * 10**9))
        found[host] = Ingress(rate_bps, mtu_bytes, slack_bytes, int(native))
    return found


def _highest_rates(run: Run) -> dict[int, int]:
    """Link -> the highest rate that it had in the run, slowed down as the run was."""
    rates = {link.index: link.rate_bps for link in run.fabric.links}
    for fault in run.spec.faults:
        if isinstance(fault, RateChange):
            for link in links_between(run.fabric, fault.link):
                rates[link.index] = max(rates[link.index], fault.value)
    return {i: slowed_rate_bps(rate, run.environment.scale) for i, rate in rates.items()}

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
from math import floor

from analysis.runs.collectives import MeasuredCollective, collectives_of
from analysis.runs.ingress import CLOCK_NS, Ingress, ingress_of
from analysis.runs.run import Run
from collectives.kinds import least_received_bytes, least_total_bytes
from topologies.units import format_rate


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
    ingress = ingress_of(run)
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


def _together(members: Sequence[Ingress]) -> Ingress:
    return Ingress(
        sum(member.rate_bps for member in members),
        max(member.mtu_bytes for member in members),
        sum(member.slack_bytes for member in members),
        max(member.rounding_ns for member in members),
    )


def _impossible(collective: MeasuredCollective, ingress: Sequence[Ingress]) -> list[ImpossibleTime]:
    """The impossible times of a collective whose members have this ingress."""
    found: list[ImpossibleTime] = []

    def check(rank: int | None, size_bytes: int, into: Ingress, measured_ns: int) -> None:
        needed = into.least_ns(size_bytes)
        if measured_ns + CLOCK_NS <= needed:
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

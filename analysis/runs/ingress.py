"""The most that can come into a host: by its links together, in full frames with the smallest
headers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from analysis.runs.run import Run
from topologies.ethernet import ETHERNET_BYTES, full_frame_bytes
from topologies.fabrics.selectors import links_between
from topologies.spec.run_sections import RateChange
from topologies.spec.scaling import slowed_rate_bps

_LEAST_HEADERS_BYTES = 40
"""IPv4 20 and TCP 20, without options (RFC 791, 9293)."""
_ONE_PACKET = 1 << 62
"""More than any payload."""
CLOCK_NS = 1
"""A clock that counts nanoseconds can show a time by this much shorter than it was."""


@dataclass(frozen=True, slots=True)
class Ingress:
    """The most that can come into a host, or into several: the sum of its links' rates and their
    largest packets. `slack_bytes` may come before its time, and each frame by `rounding_ns`."""

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


def ingress_of(run: Run) -> dict[str, Ingress]:
    """Host -> what can come into it, of the fabric that was emulated."""
    rates = _highest_rates(run)
    native = run.environment.kernel == "native"
    found = {}
    for host in dict.fromkeys(run.hosts):
        links = run.fabric.links_of[host]
        # Copies of memory have no headers: they come as if in one packet.
        copied = any(link.link_class == run.fabric.copied_class for link in links)
        mtu_bytes = _ONE_PACKET if copied else max(link.mtu_bytes for link in links)
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

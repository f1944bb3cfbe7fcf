"""How deep a port's token bucket is: what makes up for timers that are late.

A token bucket sends when a timer says that its tokens suffice. While the timer is late, tokens go
on coming in, up to the bucket's depth; what exceeds it is lost, and the link is slower than its
rate for good. So a bucket of one frame loses the lateness of every packet. A bucket that is deeper
by `lateness_ns` of the link's rate loses nothing while no timer is later than that.

The price: a link that was idle has its bucket full, and lets through that much at once. It is paid
once per busy period, and is bounded by the depth.
"""

from __future__ import annotations

from emulator.ports.disciplines import BY_KIND
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import QueueSpec, queues_in

LATENESS_NS = 1_000_000
"""How late timers may be natively without a link losing its rate. The verdict allows one timer in
a hundred to be later (`timer_lateness_ns`)."""

_PART = 4
"""A burst of the bucket's depth may be this part of what a queue acts on, so that its marks and
losses come at most by a quarter of its threshold late."""


def token_depth_bytes(link: Link, queue: QueueSpec, lateness_ns: int) -> int:
    """The depth of a port's bucket beyond one frame, in L1 bytes: what the link sends in
    `lateness_ns`, but no more than a quarter of the least backlog at which the queue acts."""
    wanted = link.rate_bps * lateness_ns // (8 * 10**9)
    return min(wanted, _acts_at_bytes(link, queue) // _PART)


def spare_depth_bytes(link: Link, lateness_ns: int, spare_headroom_bytes: int) -> int:
    """The same for a port that a lossless neighbour may pause. The tokens in its bucket arrive
    after the pause as well, so they come out of the headroom that the link itself does not need;
    half of that is left for pauses that are late."""
    wanted = link.rate_bps * lateness_ns // (8 * 10**9)
    return max(0, min(wanted, spare_headroom_bytes // 2))


def _acts_at_bytes(link: Link, queue: QueueSpec) -> int:
    """The least backlog at which a queue marks, drops or pauses."""
    return min(BY_KIND[each.kind].acts_at_bytes(each, link) for each in queues_in(queue))

"""Gloo's stepwise collectives on an idle fabric, evaluated for all members at once.

Every member sends to at most one other in a step and all by the same shift (rings, dissemination
barrier). A member's step depends on its own and its neighbours' earlier steps only, so the schedule
is a recurrence over vectors with one entry per member.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from analysis.predict.engines.message_costs import MessageCosts
from analysis.predict.engines.paths import Paths
from analysis.predict.engines.wire import Floats, Ints
from analysis.predict.interface import PredictorError
from collectives.call import CollectiveCall
from collectives.schedule.gloo_steps import Step
from collectives.schedule.schedule import Post

_CHAIN = 8
"""Iterations of `_invited`; more change nothing in the fabrics tried."""


class Lockstep:
    """The members' clocks and egress ports, in nanoseconds from the common start."""

    def __init__(self, paths: Paths, call: CollectiveCall, costs: MessageCosts) -> None:
        self._paths = paths
        self._ranks = np.array(call.ranks, dtype=np.int64)
        self._costs = costs
        self._links: dict[int, _Neighbours] = {}
        self._clock = np.zeros(call.world)
        # When a member's port has sent all but its last message, when it got the last, and when it
        # has sent that too.
        self._free_before_last = np.zeros(call.world)
        self._last_ready = np.zeros(call.world)
        self._free = np.zeros(call.world)

    def run(self, steps: Iterable[Step]) -> Floats:
        """When each member has finished the steps."""
        clock = self._clock
        outstanding: dict[int, tuple[Post, Floats, Floats]] = {}
        posts = 0
        for step in steps:
            if isinstance(step, Post):
                outstanding[posts] = (step, *self._exchange(step))
                posts += 1
                continue
            post, sent, received = outstanding.pop(step.post)
            clock[post.source] = np.maximum(clock[post.source], sent)
            clock[post.destination] = np.maximum(clock[post.destination], received)
        return clock

    def _exchange(self, post: Post) -> tuple[Floats, Floats]:
        """(send completed, receive completed) of each message of a post."""
        if len(post.source) == 0:
            return np.zeros(0), np.zeros(0)
        at, to, clock = post.source, post.destination, self._clock
        near = self._neighbours(int(to[0] - at[0]) % len(self._ranks))
        ns_per_byte = near.ns_per_byte[at]
        invited = self._invited(post, near)
        ready = np.maximum(clock[at], invited) + self._costs.parameters.message_overhead_ns
        notices_ns = self._costs.notice_bytes * ns_per_byte
        wire = self._costs.wire_bytes(post.size_bytes)
        start = np.maximum(ready, np.maximum(self._free[at], clock[at]) + notices_ns)
        self._free_before_last[at] = self._free[at]
        self._last_ready[at] = ready
        self._free[at] = start + wire * ns_per_byte
        tail = near.fixed_ns[at] + np.minimum(wire, near.frame_bytes) * near.forwarding[at]
        return ready, self._free[at] + tail

    def _queued_until(self, near: _Neighbours) -> Floats:
        """By member: when its port has sent the payload that is in its queue now."""
        posted = np.where(self._last_ready <= self._clock, self._free, self._free_before_last)
        bounded: Floats = np.minimum(posted, self._clock + near.queued_ns)
        return bounded

    def _invited(self, post: Post, near: _Neighbours) -> Floats:
        """When RECV_READY reaches each message's sender.

        A notification that leaves its host by the port of the payload waits behind that port's
        queue. All members are sending by then. At its last port, when payload arrives by it, too,
        it finds a frame before it. With `sends_first`, a send that may leave at once is in the
        queue, too. Whether it may depends on the neighbour's RECV_READY of the same step, hence the
        iteration; the chains of members that wait for nobody are short.
        """
        at, to, clock = post.source, post.destination, self._clock
        if not self._costs.effects.rendezvous:
            return np.zeros(len(at))
        queued = np.where(near.same_first_port, self._queued_until(near), 0.0)
        frame_ns = np.minimum(self._costs.wire_bytes(post.size_bytes), near.frame_bytes)
        finds_frame = (queued[to] > clock[to]) & near.same_last_port[at]
        frame_ns = np.where(finds_frame, frame_ns * near.ns_per_byte[at], 0.0)
        transit_ns = frame_ns + near.notification_ns[at]
        invited: Floats = np.maximum(queued, clock)[to] + transit_ns
        if not post.sends_first:
            return invited
        wire_ns = self._costs.wire_bytes(post.size_bytes) * near.ns_per_byte[at]
        for _ in range(_CHAIN):
            at_once = invited <= clock[at]
            longer = np.maximum(queued, clock)
            longer[at] += np.where(at_once & near.same_first_port[at], wire_ns, 0.0)
            invited = longer[to] + transit_ns
            if np.array_equal(invited <= clock[at], at_once):
                break
        return invited

    def _neighbours(self, shift: int) -> _Neighbours:
        found = self._links.get(shift)
        if found is None:
            found = _Neighbours(self._paths, self._costs, self._ranks, shift)
            self._links[shift] = found
        return found


class _Neighbours:
    """Path constants between every member and the one `shift` further, by member.

    A member's notification goes to the member `shift` before it: `same_first_port` says whether it
    leaves by the port that the member's payload leaves by, and `same_last_port`, by receiving
    member, whether it arrives by the port that payload arrives by. `queued_ns` is how long payload
    that is in the member's port takes to leave it, at most.
    """

    def __init__(self, paths: Paths, costs: MessageCosts, ranks: Ints, shift: int) -> None:
        others = np.roll(ranks, -shift)
        ahead, back = paths.follow(ranks, others), paths.follow(others, ranks)
        if not ahead.shape[1] or not back.shape[1]:
            raise PredictorError("its ranks share a host; what these exchange is not predicted")
        forward, backward = paths.costs_of(ahead), paths.costs_of(back)
        self.ns_per_byte = costs.ns_per_byte(forward)
        self.frame_bytes = float(forward.full_frame_bytes)
        self.fixed_ns = costs.tail_ns(forward, 0.0)
        self.forwarding = forward.sum_ns_per_byte - forward.ns_per_byte
        self.notification_ns = costs.notification_ns(backward)
        segments = np.array([*paths.queued_segments(), np.inf])
        queued = segments[ahead].min(axis=1)
        queued[forward.hops == 0] = 0  # within a host nothing waits
        self.queued_ns = self.frame_bytes * self.ns_per_byte * queued
        self.same_first_port = np.roll(back[:, 0], shift) == ahead[:, 0]
        every = np.arange(len(ranks))
        payload_in = np.roll(ahead[every, forward.hops - 1], shift)
        self.same_last_port = back[every, backward.hops - 1] == payload_in

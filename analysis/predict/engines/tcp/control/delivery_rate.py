"""How fast a connection's data is delivered, sampled with each acknowledgement.

As of net/ipv4/tcp_rate.c of Linux 6.12, with times in whole microseconds as there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Sent(NamedTuple):
    """What was known when a segment was sent (tcp_skb_cb's tx)."""

    first_sent_us: int
    delivered_us: int
    delivered: int
    app_limited: bool


class Sampled(Protocol):
    """A segment that was sent."""

    sent_ns: int
    end_seq: int
    sent: Sent | None


@dataclass(frozen=True, slots=True)
class RateSample:
    """What an acknowledgement tells (struct rate_sample); `delivered` is below 0 where it tells no
    rate, `rtt_us` where it tells no round trip."""

    delivered: int
    interval_us: int
    prior_delivered: int
    prior_in_flight: int
    rtt_us: int
    acked: int
    losses: int
    app_limited: bool


class DeliveryRate:
    """The sampler of a connection."""

    def __init__(self) -> None:
        self.app_limited = 0
        """What is delivered when a gap in sending has passed; 0 without one."""
        self.delivered_us = 0
        self._first_sent_us = 0
        self._prior: Sent | None = None
        self._last_end_seq = self._send_phase_us = 0

    def sent(self, segment: Sampled, packets_out: int, delivered: int) -> None:
        """As of tcp_rate_skb_sent."""
        if not packets_out:
            self._first_sent_us = self.delivered_us = segment.sent_ns // 1000
        segment.sent = Sent(
            self._first_sent_us, self.delivered_us, delivered, bool(self.app_limited)
        )

    def took(self, segment: Sampled) -> None:
        """As of tcp_rate_skb_delivered: a segment is acknowledged, also selectively."""
        sent, segment.sent = segment.sent, None
        if sent is None:
            return
        sent_us = segment.sent_ns // 1000
        latest = self._first_sent_us, self._last_end_seq
        if self._prior is None or not self._prior.delivered or (sent_us, segment.end_seq) > latest:
            self._prior = sent
            self._last_end_seq = segment.end_seq
            self._first_sent_us = sent_us
            self._send_phase_us = sent_us - sent.first_sent_us

    def sample(
        self,
        delivered: int,
        acked: int,
        losses: int,
        prior_in_flight: int,
        rtt_us: int,
        min_rtt_us: int,
        now: int,
    ) -> RateSample:
        """As of tcp_rate_gen."""
        if self.app_limited and delivered > self.app_limited:
            self.app_limited = 0
        now_us = now // 1000
        if acked:
            self.delivered_us = now_us
        prior, self._prior = self._prior, None
        self._last_end_seq = 0
        if prior is None:
            return RateSample(-1, -1, 0, prior_in_flight, rtt_us, acked, losses, False)
        interval_us = max(self._send_phase_us, now_us - prior.delivered_us)
        if interval_us < min_rtt_us:
            interval_us = -1
        return RateSample(
            delivered - prior.delivered,
            interval_us,
            prior.delivered,
            prior_in_flight,
            rtt_us,
            acked,
            losses,
            prior.app_limited,
        )

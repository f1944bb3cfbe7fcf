"""Limits that a run must keep to be believed. Each threshold has its reason; results quote it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from emulator.ports.token_depth import LATENESS_NS


@dataclass(frozen=True, slots=True)
class Threshold:
    """`name` is a field of `Figures`; a figure above `limit` makes the run invalid. `text` says
    what was seen, with the figure, formatted by `form`, in place of `{figure}`; `reason` says why
    that matters. `of_time`: what it threatens are times alone, so that times which are known to be
    right outweigh it."""

    name: str
    limit: float
    form: str
    text: str
    reason: str
    of_time: bool = True

    def explain(self, figure: float) -> str:
        """The figure, the limit and the reason in one sentence."""
        text = self.text.format(figure=format(figure, self.form))
        return f"{text} (limit {format(self.limit, self.form)}): {self.reason}"


SATURATED_BUSY = 0.98
"""A core that is busy for more than this share of a sample is saturated: /proc/stat counts ticks,
so a core that never idles may read one tick short."""

PORTS_BEHIND = 0.03
"""The share by which ports may fall behind their rate. Where the slowest does, all that crosses it
takes as much longer. A valid run may be off by 5%; the rest is for the times that its own are held
against."""

THRESHOLDS = (
    Threshold(
        "saturated_share",
        0.20,
        ".0%",
        "a core was saturated in {figure} of the samples",
        "a packet or a rank that is due then waits for the core, so the fabric runs at the "
        "machine's speed and not at its own",
    ),
    Threshold(
        "steal_share",
        0.02,
        ".1%",
        "the hypervisor took {figure} of the processor time",
        "timers and ranks stand still meanwhile, and nothing in this machine can see when",
    ),
    Threshold(
        "softnet_drops",
        0,
        ",.0f",
        "the receive backlogs of the processors dropped {figure} packets (softnet_stat)",
        "they were lost outside of any emulated queue",
        of_time=False,
    ),
    Threshold(
        "lost_outside_queues",
        0,
        ",.0f",
        "devices lost {figure} packets",
        "they were lost outside of any emulated queue",
        of_time=False,
    ),
    Threshold(
        "queue_lateness",
        PORTS_BEHIND,
        ".1%",
        "ports with enough to send fell {figure} behind their rate",
        "the queues served slower than the links that they stand for",
    ),
    Threshold(
        "late_delay_lines",
        0.05,  # one timer in a hundred may be late, and a look sees several packets
        ".0%",
        "in {figure} of the looks at them delay lines held packets for too long",
        "links were longer than their delays say, and whoever waits for a message waits as much "
        "longer",
    ),
    Threshold(
        "rank_delay_share",
        0.10,
        ".0%",
        "a rank waited for a processor for {figure} of the time",
        "its computing, sending and acknowledging came late by as much",
    ),
    Threshold(
        "timer_lateness_ns",
        LATENESS_NS,  # what token buckets make up for; slow links allow more: `thresholds_of`
        ",.0f",
        "one timer in a hundred was {figure} ns late or more",
        "packets leave queues and delay lines by timers, so they are late by as much, and time "
        "beyond what links make up for is lost",
    ),
    Threshold(
        "capture_drops",
        0,
        ",.0f",
        "the capture lost {figure} packets",
        "figures from the capture (times on the wire, retransmissions) have gaps",
        of_time=False,
    ),
    Threshold(
        "pause_reaction_ns",
        0,  # the port's own takes its place: `thresholds_of`
        ",.0f",
        "a lossless port's neighbour was paused {figure} ns after XOFF",
        "the headroom holds what arrives until then and no more, so that packets were lost, or "
        "might have been, that priority flow control does not lose",
        of_time=False,
    ),
)


def thresholds_of(frame_ns: int, reaction_allowed_ns: int | None = None) -> tuple[Threshold, ...]:
    """The thresholds of a fabric whose fastest link sends a full frame in `frame_ns`.

    A link that waits for a late timer loses the time beyond its bucket's tokens, at most once a
    frame. So the limit for timers costs a link no more than ports may fall behind.
    `reaction_allowed_ns` is what the lossless port with the worst reaction allows.
    """
    limits = {"timer_lateness_ns": LATENESS_NS + int(PORTS_BEHIND * frame_ns)}
    if reaction_allowed_ns is not None:
        limits["pause_reaction_ns"] = reaction_allowed_ns
    return tuple(replace(t, limit=limits.get(t.name, t.limit)) for t in THRESHOLDS)

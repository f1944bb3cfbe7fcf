"""Whether TIMELY's shares are its recurrence's: the kernel's controller at a queue in user space.

    .venv/bin/python -m benchmarks.roce.timely_draws

Eight senders, a switch and a receiver, as in `fairness`. Each packet is paced by the
controller (emulator/kernel/rxe/rxe_timely.c, compiled for user space), waits in the port to the
receiver and is acknowledged; a round-trip time is from the end of its serialisation, once a round.
Draws differ in when flows begin, within 10 or 100 us. Prints Jain's index of the second half of two
lengths.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import random
from dataclasses import dataclass, field
from statistics import median

from testing.rate_controllers import ONE_Q32, Settings, Timely, library
from testing.roce_streams import jain

FLOWS, DRAWS, FAIR = 8, 16, 0.99
HEADER_BYTES, ACK_BYTES = 82, 86
SPREADS_NS = (10_000, 100_000)
LENGTHS_NS = (6_000_000, 26_000_000)
BIN_NS = 100_000


@dataclass(frozen=True, slots=True)
class Path:
    """The settings that all flows have in common; links are alike."""

    line_bps: int
    delay_ns: int
    payload_bytes: int

    @property
    def packet_ns(self) -> float:
        return 8e9 * (self.payload_bytes + HEADER_BYTES) / self.line_bps

    @property
    def back_ns(self) -> float:
        """From a packet's last bit to its sender's hearing of it."""
        return 2 * (self.delay_ns + 8e9 * ACK_BYTES / self.line_bps)

    def settings(self) -> Settings:
        """The defaults of `transport.timely`."""
        return Settings(
            kind=2,
            line_bps=self.line_bps,
            min_bps=self.line_bps // 100,
            additive_bps=self.line_bps // 1000,
            hyper_bps=self.line_bps // 200,
            rtt_min_ns=20_000,
            rtt_low_ns=50_000,
            rtt_high_ns=500_000,
            ewma_q32=ONE_Q32 // 8 * 7,
            beta_q32=ONE_Q32 // 5 * 4,
            hyper_after=5,
        )


PATHS = {
    "10 Gb/s, 5 us a link, 1024 B": Path(10_000_000_000, 5_000, 1024),
    "100 Gb/s, 1 us a link, 4096 B": Path(100_000_000_000, 1_000, 4096),
}


@dataclass(slots=True)
class _Flow:
    """`round_packet` is the first whose acknowledgement ends the round."""

    state: Timely
    sent: int = 0
    round_packet: int = 0
    bits: list[int] = field(default_factory=list)


def bits_of(path: Path, draw: int, spread_ns: int, end_ns: int) -> list[list[int]]:
    """The bits of payload that each flow delivered, by `BIN_NS`."""
    controller, settings = library(), path.settings()
    flows = [_Flow(Timely(), bits=[0] * (end_ns // BIN_NS)) for _ in range(FLOWS)]
    events: list[tuple[float, int, int, int, float]] = []
    starts, made, free_ns = random.Random(draw), 0, 0.0
    for number, flow in enumerate(flows):
        controller.rxe_timely_init(ctypes.byref(flow.state), ctypes.byref(settings))
        # Time, number of the event, flow, and the packet that is acknowledged or -1.
        heapq.heappush(events, (float(starts.randrange(spread_ns)), made, number, -1, 0.0))
        made += 1
    while events[0][0] < end_ns:
        now, _, number, packet, rtt_ns = heapq.heappop(events)
        flow = flows[number]
        if packet >= 0:
            flow.bits[int(now) // BIN_NS] += 8 * path.payload_bytes
            if packet >= flow.round_packet:
                args = ctypes.byref(flow.state), ctypes.byref(settings), int(rtt_ns)
                controller.rxe_timely_rtt(*args)
                flow.round_packet = flow.sent
            continue
        left_ns = now + path.packet_ns
        free_ns = max(free_ns, left_ns + path.delay_ns) + path.packet_ns
        back_ns = free_ns + path.delay_ns + path.back_ns
        heapq.heappush(events, (back_ns, made, number, flow.sent, back_ns - left_ns))
        flow.sent += 1
        next_ns = now + path.packet_ns * path.line_bps / flow.state.rate_bps
        heapq.heappush(events, (next_ns, made + 1, number, -1, 0.0))
        made += 2
    return [flow.bits for flow in flows]


def fairness(bits: list[list[int]], length_ns: int) -> float:
    """Jain's index of the second half of so long."""
    begin, end = length_ns // 2 // BIN_NS, length_ns // BIN_NS
    return jain([sum(each[begin:end]) for each in bits])


def main() -> None:
    print("| path | begin within, us | of, ms | Jain: least, median | fair draws | goodput Gb/s |")
    print(f"|{'---|' * 6}")
    for (name, path), spread_ns in itertools.product(PATHS.items(), SPREADS_NS):
        drawn = [bits_of(path, draw, spread_ns, LENGTHS_NS[-1]) for draw in range(DRAWS)]
        for length_ns in LENGTHS_NS:
            found = [fairness(each, length_ns) for each in drawn]
            half = length_ns // 2 // BIN_NS
            sums = [sum(sum(one[half : 2 * half]) for one in each) for each in drawn]
            rates = [total / (half * BIN_NS) for total in sums]
            print(
                f"| {name} | {spread_ns // 1000} "
                f"| {length_ns // 2_000_000} to {length_ns // 1_000_000} "
                f"| {min(found):.4f}, {median(found):.4f} "
                f"| {sum(each >= FAIR for each in found)} of {DRAWS} "
                f"| {min(rates):.1f} to {max(rates):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

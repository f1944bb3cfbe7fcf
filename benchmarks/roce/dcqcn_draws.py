"""Whether DCQCN's shares are its recurrence's: the kernel's controller at a queue in user space.

    .venv/bin/python -m benchmarks.roce.dcqcn_draws

Eight senders at 100 Gb/s, 1 us from a switch, that is 1 us from their receiver. Each packet is
paced by the controller (emulator/kernel/rxe/rxe_dcqcn.c, compiled for user space) and marked by the
queue that it finds, as `red` does. Only the marks' random numbers differ between draws. Prints
Jain's index of 8 to 16 ms, and how soon a flow that is 5 ms late has its share: when Jain's index
of 2 ms has come to 0.99 for good, within 40 ms.
"""

from __future__ import annotations

import ctypes
import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from testing.rate_controllers import ONE_Q32, Dcqcn, Settings, library
from testing.roce_streams import jain

FLOWS = 8
LINE_BPS = 100_000_000_000
PAYLOAD_BYTES, HEADER_BYTES = 4096, 82
DELAY_NS = 1_000
KMIN_BYTES, KMAX_BYTES = 100_000, 400_000
BIN_NS = 100_000
END_NS, LATE_END_NS, LATE_NS = 16_000_000, 40_000_000, 5_000_000
STRETCH_NS, FAIR = 2_000_000, 0.99
DRAWS, LATE_DRAWS = 32, 4


@dataclass(frozen=True, slots=True)
class Case:
    """Parameters of DCQCN, defaults those of `transport.dcqcn`, and of the queue's marks."""

    name: str
    pmax: float = 0.2
    clamp_target: bool = False
    cnp_ns: int = 4_000
    alpha_ns: int = 1_000
    decrease_ns: int = 4_000
    increase_ns: int = 300_000
    fast_stages: int = 1
    additive_bps: int = 20_000_000
    hyper_bps: int = 200_000_000

    def settings(self) -> Settings:
        """As the kernel has them."""
        return Settings(
            kind=1,
            line_bps=LINE_BPS,
            min_bps=LINE_BPS // 100,
            additive_bps=self.additive_bps,
            hyper_bps=self.hyper_bps,
            cnp_interval_ns=self.cnp_ns,
            alpha_interval_ns=self.alpha_ns,
            decrease_interval_ns=self.decrease_ns,
            increase_interval_ns=self.increase_ns,
            gain_q32=ONE_Q32 // 256,
            fast_stages=self.fast_stages,
            clamp_target=int(self.clamp_target),
        )


_PAPER = {
    "cnp_ns": 50_000,
    "alpha_ns": 55_000,
    "decrease_ns": 50_000,
    "increase_ns": 55_000,
    "fast_stages": 5,
    "additive_bps": 40_000_000,
    "hyper_bps": 400_000_000,
}
CASES = (
    Case("defaults"),
    Case("defaults, pmax 1", pmax=1.0),
    Case("clamp_target", clamp_target=True),
    Case("clamp_target, pmax 1", clamp_target=True, pmax=1.0),
    Case("its paper's clocks, clamp_target", clamp_target=True, **_PAPER),
)


@dataclass(slots=True)
class _Port:
    """Flows and the port that they share. Events are (time, number, what, flow), so that those of
    one time come in the order in which they were made."""

    case: Case
    chance: random.Random
    end_ns: int
    late_ns: int
    free_ns: float = 0.0
    made: int = 0
    events: list[tuple[float, int, str, int]] = field(default_factory=list)
    bits: list[list[int]] = field(default_factory=list)

    def run(self) -> list[list[int]]:
        """The bits of payload that each flow delivered, by `BIN_NS`."""
        controller, of = library(), self.case.settings()
        states = [Dcqcn() for _ in range(FLOWS)]
        for state in states:
            controller.rxe_dcqcn_init(ctypes.byref(state), ctypes.byref(of))
        wire_bits = 8 * (PAYLOAD_BYTES + HEADER_BYTES)
        own_ns = wire_bits * 1e9 / LINE_BPS
        quiet_until_ns = [0.0] * FLOWS
        self.bits = [[0] * (self.end_ns // BIN_NS) for _ in range(FLOWS)]
        for flow in range(FLOWS):
            self._at(self.late_ns if flow == FLOWS - 1 else 0, "send", flow)
        while self.events[0][0] < self.end_ns:
            now, _, what, flow = heapq.heappop(self.events)
            args = ctypes.byref(states[flow]), ctypes.byref(of), int(now)
            if what == "send":
                controller.rxe_dcqcn_advance(*args)
                self._at(now + wire_bits * 1e9 / states[flow].rate_bps, "send", flow)
                self._at(now + own_ns + DELAY_NS, "queue", flow)
            elif what == "queue":
                marked = self._marks(max(0.0, self.free_ns - now) * LINE_BPS / 8e9)
                self.free_ns = max(self.free_ns, now) + own_ns
                self._at(self.free_ns + DELAY_NS, "marked" if marked else "plain", flow)
            elif what == "notified":
                controller.rxe_dcqcn_cnp(*args)
            else:
                self.bits[flow][int(now) // BIN_NS] += 8 * PAYLOAD_BYTES
                if what == "marked" and now >= quiet_until_ns[flow]:
                    quiet_until_ns[flow] = now + self.case.cnp_ns
                    self._at(now + 2 * DELAY_NS, "notified", flow)
        return self.bits

    def _at(self, time_ns: float, what: str, flow: int) -> None:
        self.made += 1
        heapq.heappush(self.events, (time_ns, self.made, what, flow))

    def _marks(self, queue_bytes: float) -> bool:
        above = (queue_bytes - KMIN_BYTES) / (KMAX_BYTES - KMIN_BYTES)
        return above > 1 or (above > 0 and self.chance.random() < self.case.pmax * above)


def main() -> None:
    print("| | Jain, 8 to 16 ms: least, median | draws of 0.99 or more | a late flow, ms |")
    print(f"|{'---|' * 4}")
    for case in CASES:
        found = [_jain(_bits(case, draw), END_NS // 2, END_NS) for draw in range(DRAWS)]
        fair = sum(each >= FAIR for each in found)
        late = [_fair_after_ms(_bits(case, draw, LATE_NS)) for draw in range(LATE_DRAWS)]
        print(
            f"| {case.name} | {min(found):.4f}, {median(found):.4f} | {fair} of {DRAWS} "
            f"| {', '.join(late)} |",
            flush=True,
        )


def _bits(case: Case, draw: int, late_ns: int = 0) -> list[list[int]]:
    end_ns = LATE_END_NS if late_ns else END_NS
    return _Port(case, random.Random(draw), end_ns, late_ns).run()


def _jain(bits: Sequence[Sequence[int]], begin_ns: int, end_ns: int) -> float:
    return jain([sum(each[begin_ns // BIN_NS : end_ns // BIN_NS]) for each in bits])


def _fair_after_ms(bits: Sequence[Sequence[int]]) -> str:
    starts = range(LATE_NS, LATE_END_NS - STRETCH_NS, BIN_NS)
    unfair = [at for at in starts if _jain(bits, at, at + STRETCH_NS) < FAIR]
    fair_ns = unfair[-1] + BIN_NS - LATE_NS if unfair else 0
    return f"{fair_ns / 1e6:.1f}" if fair_ns + LATE_NS < starts[-1] else "not"


if __name__ == "__main__":
    main()

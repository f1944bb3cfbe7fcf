"""Each controller of rates against its recurrence, written once more in floating point."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from testing.rate_controllers import (
    FIELDS,
    ONE_Q32,
    Dcqcn,
    Dctcp,
    Hop,
    Hpcc,
    Settings,
    Timely,
    library,
)
from topologies.fabrics.build import build_fabric
from topologies.spec.spec import parse_spec
from topologies.spec.transports.roce.device import device_settings

_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)

_SPEC = """
name: controllers
fabric: {{kind: flat, hosts: 2, link: {{rate: {rate}, delay: 1us, mtu: 4300}},
  queue: {{kind: dctcp}}}}
transport: {{kind: roce, path_mtu: 4096, congestion_control: {control}, {control}: {parameters}}}
workload: {{kind: command, ranks: 2, argv: [train]}}
"""


def _settings(control: str, rate: str = "100Gbps", parameters: str = "{}") -> Settings:
    """The settings that the kernel is told, as the kernel has them."""
    spec = parse_spec(_SPEC.format(control=control, rate=rate, parameters=parameters))
    fabric = build_fabric(spec.fabric)
    told = device_settings(spec.transport, fabric, fabric.links[0].rate_bps)  # type: ignore[arg-type]
    return Settings(**{name: told[name] for name in FIELDS if name in told})


def test_defaults_are_those_of_hpccs_simulator() -> None:
    """run.py and config.txt at 100 Gb/s: AI 20 and HAI 200 Mb/s for DCQCN, 100 and 500 for TIMELY,
    40 for HPCC, 1 Gb/s at least."""
    dcqcn = _settings("dcqcn")
    assert (dcqcn.additive_bps, dcqcn.hyper_bps, dcqcn.min_bps) == (20 * 10**6, 2 * 10**8, 10**9)
    assert (dcqcn.alpha_interval_ns, dcqcn.decrease_interval_ns) == (1_000, 4_000)
    assert (dcqcn.increase_interval_ns, dcqcn.gain_q32) == (300_000, ONE_Q32 // 256)
    timely = _settings("timely")
    assert (timely.additive_bps, timely.hyper_bps) == (10**8, 5 * 10**8)
    hpcc = _settings("hpcc")
    assert hpcc.additive_bps == 4 * 10**7
    # There and back two links of 1 us; 4096 + 110 bytes there and 114 back, stored once
    assert hpcc.base_rtt_ns == 4_000 + -(-2 * 8 * (4096 + 110 + 114) // 100)


@dataclass
class _Dcqcn:
    """Clocks that tick one by one."""

    of: Settings
    rate: float = 0.0
    target: float = 0.0
    alpha: float = 1.0
    stage: int = 0
    started: bool = False
    seen: set[str] = field(default_factory=set)
    due: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rate = self.target = float(self.of.line_bps)

    def advance(self, now: int) -> None:
        while self.started:
            name = min(self.due, key=lambda each: (self.due[each], _ORDER.index(each)))
            if self.due[name] > now:
                return
            getattr(self, f"_{name}")()
            self.due[name] += getattr(self.of, f"{name}_interval_ns")

    def cnp(self, now: int) -> None:
        self.advance(now)
        self.seen = {"alpha", "decrease"} if self.started else {"decrease"}
        if not self.started:
            self.started = True
            self.due = {name: now + getattr(self.of, f"{name}_interval_ns") for name in _ORDER}

    def _alpha(self) -> None:
        gain = self.of.gain_q32 / ONE_Q32
        self.alpha = (1 - gain) * self.alpha + gain * ("alpha" in self.seen)
        self.seen.discard("alpha")

    def _decrease(self) -> None:
        if "decrease" not in self.seen:
            return
        self.seen.discard("decrease")
        if self.of.clamp_target or self.stage > 0:
            self.target = self.rate
        self.rate = max(self.of.min_bps, self.rate * (1 - self.alpha / 2))
        self.stage = 0
        self.due["increase"] = self.due["decrease"] + self.of.increase_interval_ns

    def _increase(self) -> None:
        line = self.of.line_bps
        if self.stage == self.of.fast_stages:
            self.target = min(line, self.target + self.of.additive_bps)
        elif self.stage > self.of.fast_stages:
            self.target = min(line, self.target + self.of.hyper_bps)
        self.rate = (self.rate + self.target) / 2
        self.stage += 1


_ORDER = ("alpha", "decrease", "increase")
_PARAMETERS = st.fixed_dictionaries(
    {
        "alpha_interval": st.sampled_from(["1us", "50us", "55us"]),
        "decrease_interval": st.sampled_from(["4us", "50us"]),
        "increase_interval": st.sampled_from(["55us", "300us"]),
        "fast_stages": st.integers(0, 5),
        "clamp_target": st.booleans(),
    }
)
_GAPS_NS = st.lists(st.integers(1, 400_000), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None, phases=_PHASES)
@given(_PARAMETERS, _GAPS_NS, st.integers(0, 30_000_000))
def test_dcqcn_follows_its_clocks(
    parameters: dict[str, object], gaps_ns: list[int], rest_ns: int
) -> None:
    text = ", ".join(f"{name}: {str(value).lower()}" for name, value in parameters.items())
    of = _settings("dcqcn", parameters=f"{{{text}}}")
    state, clocks, now = Dcqcn(), _Dcqcn(of), 10**9
    library().rxe_dcqcn_init(ctypes.byref(state), ctypes.byref(of))
    assert state.rate_bps == of.line_bps
    for gap_ns in gaps_ns:
        now += gap_ns
        library().rxe_dcqcn_cnp(ctypes.byref(state), ctypes.byref(of), now)
        clocks.cnp(now)
        _assert_same(state, clocks, now)
    now += rest_ns
    library().rxe_dcqcn_advance(ctypes.byref(state), ctypes.byref(of), now)
    clocks.advance(now)
    _assert_same(state, clocks, now)


def _assert_same(state: Dcqcn, clocks: _Dcqcn, now: int) -> None:
    assert state.rate_bps == pytest.approx(clocks.rate, rel=1e-6)
    assert state.target_bps == pytest.approx(clocks.target, rel=1e-6)
    assert state.alpha_q32 / ONE_Q32 == pytest.approx(clocks.alpha, abs=1e-5)
    assert min(state.next_alpha_ns, state.next_decrease_ns, state.next_increase_ns) > now


def test_dcqcn_recovers_by_its_three_stages() -> None:
    """One CNP halves the rate (alpha 1, four times less 1/256); then it comes back."""
    of = _settings("dcqcn")
    state = Dcqcn()
    library().rxe_dcqcn_init(ctypes.byref(state), ctypes.byref(of))
    library().rxe_dcqcn_cnp(ctypes.byref(state), ctypes.byref(of), 0)
    rates = []
    for now in (3_999, 4_000, 304_000, 604_000, 904_000):
        library().rxe_dcqcn_advance(ctypes.byref(state), ctypes.byref(of), now)
        rates.append(state.rate_bps / 1e9)
    cut = 100 * (1 - (255 / 256) ** 4 / 2)
    expected = [100, cut, (cut + 100) / 2, (cut + 300) / 4, (cut + 700) / 8]
    assert rates == pytest.approx(expected, rel=1e-6)
    library().rxe_dcqcn_advance(ctypes.byref(state), ctypes.byref(of), 10**12)
    assert state.rate_bps == of.line_bps


@settings(max_examples=100, deadline=None, phases=_PHASES)
@given(
    rounds=st.lists(st.lists(st.booleans(), min_size=1, max_size=40), min_size=1, max_size=30),
    gain=st.sampled_from([1 / 16, 1 / 4, 1.0]),
)
def test_dctcp_follows_its_window(rounds: list[list[bool]], gain: float) -> None:
    """A round's first mark takes alpha / 2 of the window, where alpha is of the rounds before; a
    round without one adds a packet (RFC 8257, 3.3)."""
    of = _settings("dctcp", parameters=f"{{gain: {gain}}}")
    state, begin = Dctcp(), 54_000
    library().rxe_dctcp_init(ctypes.byref(state), begin)
    window, alpha = float(begin), 1.0
    for marks in rounds:
        for number, marked in enumerate(marks, start=1):
            last = number == len(marks)
            library().rxe_dctcp_ack(ctypes.byref(state), ctypes.byref(of), 4096, marked, last)
        if any(marks):
            window = max(4096.0, window * (1 - alpha / 2))
        else:
            window += 4096
        alpha = (1 - gain) * alpha + gain * sum(marks) / len(marks)
        assert state.window_bytes == pytest.approx(window, rel=1e-6, abs=len(rounds))
        assert state.alpha_q32 / ONE_Q32 == pytest.approx(alpha, abs=1e-6)


@settings(max_examples=100, deadline=None, phases=_PHASES)
@given(st.lists(st.integers(1_000, 2_000_000), min_size=1, max_size=60))
def test_timely_follows_the_gradient(rtts_ns: list[int]) -> None:
    of = _settings("timely")
    state = Timely()
    library().rxe_timely_init(ctypes.byref(state), ctypes.byref(of))
    rate, difference, previous, row = float(of.line_bps), 0.0, 0, 0
    for rtt in rtts_ns:
        library().rxe_timely_rtt(ctypes.byref(state), ctypes.byref(of), rtt)
        if previous:
            difference = 0.125 * difference + 0.875 * (rtt - previous)
            # The kernel's difference, as its sign may hang on a part of a ns
            assert state.difference_q16 / 65536 == pytest.approx(difference, abs=1e-3 * 60)
            gradient = (state.difference_q16 / 65536) / 20_000
            if rtt < 50_000 or (rtt <= 500_000 and gradient <= 0):
                row += 1
                rate += of.hyper_bps if row > 5 else of.additive_bps
            else:
                row = 0
                cut = 0.8 * (1 - 500_000 / rtt) if rtt > 500_000 else 0.8 * gradient
                rate *= max(0.0, 1 - cut)
            rate = min(max(rate, of.min_bps), of.line_bps)
        previous = rtt
        assert state.rate_bps == pytest.approx(rate, rel=1e-5)


_HOPS = st.lists(
    st.lists(
        st.tuples(st.integers(100, 40_000), st.floats(0.01, 1), st.integers(0, 4_000)),
        min_size=3,
        max_size=3,
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=100, deadline=None, phases=_PHASES)
@given(_HOPS, st.sampled_from([0, 5]), st.lists(st.booleans(), min_size=40, max_size=40))
def test_hpcc_follows_the_fullest_link(
    acks: list[list[tuple[int, float, int]]], max_stage: int, over: list[bool]
) -> None:
    of = _settings("hpcc", parameters=f"{{max_stage: {max_stage}, base_rtt: 13us}}")
    state = Hpcc()
    library().rxe_hpcc_init(ctypes.byref(state), ctypes.byref(of))
    rtt, target = 13e-6, of.target_q32 / ONE_Q32
    rate = reference = float(of.line_bps)
    utilisation, stage = 1.0, 0
    rates_bps = (100e9, 400e9, 100e9)
    now, sent, queues = [2**32 - 5_000] * 3, [2**32 - 70_000] * 3, [0] * 3
    for number, steps in enumerate(acks):
        full = tau = 0.0
        hops = (Hop * 3)()
        for place, (gap_ns, share, queue) in enumerate(steps):
            sent_bytes = int(share * gap_ns * rates_bps[place] / 8e9)
            queued = 256 * 8 * min(queue, queues[place]) / rtt
            load = (8e9 * sent_bytes / gap_ns + queued) / rates_bps[place]
            if load > full:
                full, tau = load, min(gap_ns * 1e-9, rtt)
            now[place] += gap_ns
            sent[place] += sent_bytes
            queues[place] = queue
            hops[place] = Hop(
                now[place] % 2**32, sent[place] % 2**32, queue, int(rates_bps[place] / 1e8)
            )
        library().rxe_hpcc_ack(ctypes.byref(state), ctypes.byref(of), hops, 3, over[number])
        if number and tau:
            utilisation = (1 - tau / rtt) * utilisation + tau / rtt * full
            assert state.utilisation_q20 / 2**20 == pytest.approx(utilisation, rel=1e-3, abs=1e-4)
            # The kernel decides from here on, as c may be on either side of 1
            utilisation = state.utilisation_q20 / 2**20
            c = utilisation / target
            cuts = c >= 1 or stage >= max_stage
            rate = reference / c + of.additive_bps if cuts else reference + of.additive_bps
            rate = min(max(rate, of.min_bps), of.line_bps)
            if over[number]:
                stage, reference = 0 if cuts else stage + 1, rate
        assert state.rate_bps == pytest.approx(rate, rel=1e-3)
        reference = float(state.reference_bps) if over[number] else reference

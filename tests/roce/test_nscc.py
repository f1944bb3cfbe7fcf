"""NSCC of queue pairs of many paths: its rules, the guest against the engine, and refusals."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.pipeline import run
from testing.rate_controllers import Heard, Nscc, Settings, library
from topologies.spec.errors import SpecError
from topologies.spec.spec import parse_spec

_PACKET, _BASE_NS, _TARGET_NS = 4096, 8_000, 6_000
_MOST = 3 * 100 * _BASE_NS // 8 // 2
"""One and a half times what 100 Gb/s send in a base RTT."""


class _Window:
    def __init__(self) -> None:
        self.state, self.now_ns = Nscc(), 1_000_000
        self._settings = Settings(
            line_bps=10**11,
            base_rtt_ns=_BASE_NS,
            target_delay_ns=_TARGET_NS,
            scale_q16=(100 * _BASE_NS // 8 << 16) // 150_000,
        )
        library().rxe_nscc_init(ctypes.byref(self.state), _MOST)

    @property
    def bytes(self) -> int:
        return int(self.state.window_bytes)

    def _heard(self, packets: int) -> Any:
        return ctypes.byref(Heard(self.now_ns, _PACKET, _MOST, packets * _PACKET, self.bytes))

    def acked(self, waited_ns: int, marked: bool = False, packets: int = 1) -> None:
        state, settings = ctypes.byref(self.state), ctypes.byref(self._settings)
        library().rxe_nscc_acked(
            state, settings, self._heard(packets), _BASE_NS + waited_ns, marked
        )

    def trimmed(self) -> None:
        state, settings = ctypes.byref(self.state), ctypes.byref(self._settings)
        library().rxe_nscc_trimmed(state, settings, self._heard(0))


_EVENTS = st.lists(
    st.tuples(
        st.integers(0, 20_000), st.integers(0, 10**6), st.booleans(), st.booleans(),
        st.integers(0, 64),
    ),
    max_size=60,
)  # fmt: skip


@given(_EVENTS)
def test_a_window_is_of_a_packet_at_least_and_of_the_most_at_most(
    events: list[tuple[int, int, bool, bool, int]],
) -> None:
    window = _Window()
    for later_ns, waited_ns, marked, trimmed, packets in events:
        window.now_ns += later_ns
        if trimmed:
            window.trimmed()
        else:
            window.acked(waited_ns, marked, packets)
        assert _PACKET <= window.bytes <= _MOST


def _settled(window: _Window, rounds: int, waited_ns: int, marked: bool) -> list[int]:
    """The windows after each of so many rounds, in each of which a window is acknowledged."""
    found = []
    for _ in range(rounds):
        for _ in range(max(1, window.bytes // _PACKET)):
            window.now_ns += _BASE_NS * _PACKET // max(window.bytes, _PACKET) + 1
            window.acked(waited_ns, marked)
        found.append(window.bytes)
    return found


def test_marks_and_waiting_shrink_a_window_and_their_absence_has_it_grow() -> None:
    """Marks alone leave it, as another path will do. With both it shrinks, by 0.8 of what the mean
    wait is above the target and to half at most in a round. Without marks it grows again."""
    window = _Window()
    assert _settled(window, 5, _TARGET_NS // 2, marked=True) == [_MOST] * 5
    shrank_ns, before = 0, _MOST
    while window.bytes > _MOST / 8 and window.now_ns < 10**7:
        window.now_ns += 400
        window.acked(4 * _TARGET_NS, marked=True)
        if window.bytes < before:
            assert window.now_ns - shrank_ns > _BASE_NS
            assert window.bytes >= before // 2
            shrank_ns = window.now_ns
        before = window.bytes
    assert window.bytes <= _MOST / 8
    grown = _settled(window, 60, 0, marked=False)
    assert grown == sorted(grown) and grown[-1] == _MOST


def test_a_window_becomes_what_a_round_has_brought_after_a_trim() -> None:
    """Four packets of a round are less than an eighth of the most."""
    window = _Window()
    window.acked(0)  # a round begins
    window.now_ns += 10
    for _ in range(4):
        window.acked(0)
    window.now_ns += _BASE_NS + _TARGET_NS
    window.trimmed()
    assert window.bytes == 4 * _PACKET < _MOST / 8


_SPEC = """
name: nscc
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4,
  link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}},
  queue: {{kind: {queue}, trim: true}}, routing: {routing}}}
transport: {{kind: {transport}}}
workload: {{kind: collectives, ranks: 8, operations: [{{kind: all_to_all, size: 2MB}}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}}}
predict: [packet]
"""
_SHORT = "dctcp, k: 60KB, buffer: 120KB"


def _measured(out: Path, transport: str, routing: str) -> dict[str, Any]:
    text = _SPEC.format(queue=_SHORT, transport=transport, routing=routing)
    run(parse_spec(text), kernel="virtual", out=out, pages=False)
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert found["valid"], found["invalid_reasons"]
    (iteration,) = found["iterations"]
    predicted = iteration["predicted"]["packet"]["duration_ns"]
    assert predicted == pytest.approx(iteration["duration_ns"], rel=2e-3)
    return found


@pytest.mark.parametrize("routing", [pytest.param("ecmp", marks=pytest.mark.long), "source"])
def test_guest_and_engine_are_the_same_and_fewer_packets_are_trimmed(
    tmp_path: Path, routing: str
) -> None:
    """Eight ranks cross uplinks of half their rate, which cut what finds no room; windows that heed
    marks leave less of that to do."""
    free = _measured(tmp_path / "free", "mrc", routing)["summary"]
    held = _measured(tmp_path / "held", "mrc, congestion_control: nscc", routing)["summary"]
    assert free["trims"] > 100
    assert held["trims"] < free["trims"] / 2
    assert held["ecn_marks"] > 0 and held["drops"] == 0 and held["retries"] == 0


@pytest.mark.parametrize(
    ("transport", "queue", "said"),
    [
        ("mrc, congestion_control: nscc", "droptail", "expected queues that mark"),
        ("mrc, congestion_control: nscc, ack_every: 4", "dctcp", "expected 1 with nscc"),
        ("roce, congestion_control: nscc", "dctcp", "selective-repeat and entropy"),
        ("mrc, congestion_control: dcqcn, nscc: {}", "dctcp", "is for congestion_control: nscc"),
    ],
)
def test_refusals(transport: str, queue: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(_SPEC.format(queue=queue, transport=transport, routing="ecmp"))

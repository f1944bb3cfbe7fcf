"""Timers beside traffic: TCP's own, and the phases of a modelled computation."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testing.queue_lab import Lab, lab, line
from testing.tcp_flows import transfer
from topologies.spec.compute_section import ComputeSpec
from topologies.units import q32

pytestmark = pytest.mark.guest

_POLL = "import time\nwhile True: time.monotonic_ns()"
TICK_NS = 1_000_000  # of the machines that run training: 1000 Hz


def _connected(it: Lab) -> tuple[socket.socket, socket.socket]:
    with it.network.enter("b"):
        listener = socket.create_server(("0.0.0.0", 7000))
    with it.network.enter("a"):
        sender = socket.socket()
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sender.connect((it.address("b"), 7000))
    return sender, listener.accept()[0]


def test_a_lost_tail_is_sent_again_within_four_ticks() -> None:
    # A tail loss probe waits for two round trips, here some microseconds, and TCP_TIMEOUT_MIN_US,
    # which is 2 ms, rounded up to 3 ticks (tcp_schedule_loss_probe in net/ipv4/tcp_output.c).
    # The timer wheel counts them from the next tick on. At 100 Hz it would be 10 to 20 ms.
    with lab(line(1)) as it:
        sender, receiver = _connected(it)
        sender.send(b"x")
        receiver.recv(1)
        it.change("a", "b", loss_q32=q32(1))
        sent_ns = time.monotonic_ns()
        sender.send(b"y")
        sender.send(b"z")
        time.sleep(0.0001)
        it.change("a", "b", loss_q32=0)
        assert receiver.recv(1) in (b"y", b"z")
        assert 3 * TICK_NS <= time.monotonic_ns() - sent_ns <= 4 * TICK_NS + 20_000


@pytest.mark.parametrize("microseconds", [1, 10, 1000])
def test_a_compute_phase_takes_its_time_whatever_else_runs(
    microseconds: int, tmp_path: Path
) -> None:
    from workloads.execution.compute_model import ComputeModel
    from workloads.execution.events import EventLog

    phases = 5
    phase = ComputeModel(ComputeSpec(device="v100"), EventLog(tmp_path / "events.jsonl"))
    taken: list[int] = []

    def compute(_flows: object) -> None:
        for i in range(phases):
            start_ns = time.monotonic_ns()
            phase.pause("phase", "forward", i, microseconds * 1000)
            taken.append(time.monotonic_ns() - start_ns)

    poller = subprocess.Popen([sys.executable, "-S", "-c", _POLL])
    with lab(line(2, mtu=9000)) as it:
        both_ways = [("a", "b"), ("b", "a")]
        transfer(it, both_ways, seconds=microseconds / 1e6, during=compute)
    poller.kill()
    poller.wait()
    assert all(0 <= ns - microseconds * 1000 <= 100 for ns in taken), taken

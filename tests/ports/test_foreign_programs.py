"""Programs that nobody here wrote keep time on the fabric, and end, also those that poll."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from testing.queue_lab import ETHERNET, Lab, frame_ns, lab, line

pytestmark = pytest.mark.guest

_IPERF3_PORT = 5201


def _needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


def _run(it: Lab, node: str, *words: object) -> str:
    with it.network.enter(node):
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def _server(it: Lab, node: str, *words: object) -> Iterator[None]:
    with it.network.enter(node):
        process = subprocess.Popen([str(w) for w in words], stdout=subprocess.DEVNULL)
    time.sleep(0.1)  # virtual: until it listens
    yield
    process.kill()
    process.wait()


def _iperf3(it: Lab, *options: object) -> dict[str, Any]:
    with _server(it, "b", "iperf3", "-s", "-1"):
        said = _run(it, "a", "iperf3", "-J", "-c", it.address("b"), *options)
    end: dict[str, Any] = json.loads(said)["end"]
    return end


@_needs("iperf3")
@pytest.mark.parametrize(
    ("gbps", "mtu", "options"),
    [
        (1, 9000, ("-t", 1)),
        (1, 9000, ("-n", 50_000_000)),
        (10, 1500, ("-t", 1)),
        (10, 1500, ("-n", 50_000_000)),
        (100, 9000, ("-t", 1)),
        (100, 9000, ("-n", 200_000_000)),
    ],
)
def test_iperf3_measures_the_goodput_that_headers_leave(
    gbps: int, mtu: int, options: tuple[object, ...]
) -> None:
    with lab(line(2, rate=f"{gbps}Gbps", delay="1us", mtu=mtu)) as it:
        end = _iperf3(it, *options)
    limit = gbps * 1e9 * (mtu - 52) / (mtu + ETHERNET + 24)
    if options[0] == "-t":
        assert end["sum_sent"]["seconds"] == pytest.approx(1, abs=1e-4)
    # Slow start and iperf3's own end, which is when it next looks, are in the average.
    assert 0.98 * limit <= end["sum_received"]["bits_per_second"] <= 1.001 * limit


@_needs("iperf3")
@pytest.mark.parametrize(
    ("gbps", "options"),
    [(gbps, options) for gbps in (1, 10, 100) for options in (("-t", 1), ("-n", 10**8))],
)
def test_iperf3_sends_datagrams_at_the_rate_that_it_is_told(
    gbps: int, options: tuple[object, ...]
) -> None:
    wanted = 0.5e9 * gbps
    with lab(line(2, rate=f"{gbps}Gbps", delay="1us", mtu=9000)) as it:
        end = _iperf3(it, "-u", "-l", 8900, "-b", int(wanted), *options)
    total = end["sum"]
    assert total["lost_packets"] == 0
    assert total["bits_per_second"] == pytest.approx(wanted, rel=0.01)


@_needs("ping")
def test_ping_keeps_its_interval_and_measures_the_round_trip() -> None:
    hops, rate_bps, delay_ns, count = 3, 10_000_000_000, 100_000, 11
    with lab(line(hops, rate=f"{rate_bps}bps", delay=f"{delay_ns}ns")) as it:
        start = time.monotonic_ns()
        said = _run(it, "a", "ping", "-i", "0.2", "-c", count, it.address("b"))
        took_ns = time.monotonic_ns() - start
    # 56 bytes of data, ICMP's 8, IP's 20.
    round_trip_us = 2 * hops * (frame_ns(56 + 8 + 20 + ETHERNET, rate_bps) + delay_ns) / 1e3
    times = [float(found) for found in re.findall(r"time=([\d.]+) ms", said)]
    assert times == [pytest.approx(round_trip_us / 1e3, abs=0.001)] * count
    # ping waits with SO_RCVTIMEO, which the kernel's timer wheel rounds up to its next 8 ticks of
    # 1 ms at this distance (kernel/time/timer.c), on any machine.
    assert 0 <= took_ns - (count - 1) * 200_000_000 <= (count - 1) * 8_000_000 + 1_000_000


@_needs("sockperf")
def test_sockperf_measures_the_round_trip() -> None:
    rate_bps, delay_ns, message = 10_000_000_000, 50_000, 64
    with (
        lab(line(1, rate=f"{rate_bps}bps", delay=f"{delay_ns}ns")) as it,
        _server(it, "b", "sockperf", "server", "-i", it.address("b")),
    ):
        said = _run(
            it, "a", "sockperf", "ping-pong", "-t", 1, "-m", message,
            "-i", it.address("b"),
        )  # fmt: skip
    way_us = (frame_ns(message + 28 + ETHERNET, rate_bps) + delay_ns) / 1e3
    (latency,) = re.findall(r"Latency is ([\d.]+) usec", said)
    assert float(latency) == pytest.approx(way_us, abs=0.002)


def test_sleep_takes_its_time() -> None:
    for seconds in ("0.000001", "0.25", "100"):
        start = time.monotonic_ns()
        subprocess.run(["sleep", seconds], check=True)
        # Starting and waiting for a process takes no time; the timer has 1 ns of slack.
        assert 0 <= time.monotonic_ns() - start - float(seconds) * 1e9 <= 3

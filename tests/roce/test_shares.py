"""Flows that meet at a port, in the virtual kernel: shares, queue and time, by controller."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from analysis.decode.roce.notifications import notifications
from analysis.decode.roce.packets import roce_packets
from analysis.decode.roce.wire_format import Opcode
from analysis.decode.run_capture import load_capture
from analysis.decode.tcp.pcap import read_pcap
from analysis.runs.run import load_run
from testing.roce_streams import Flow, Streams, jain, run_streams

_SPEC = """
name: streams
fabric: {{kind: flat, hosts: {hosts}, link: {{rate: 100Gbps, delay: {delay}, mtu: 4300}},
  queue: {queue}}}
transport: {{kind: roce, path_mtu: {path_mtu}, congestion_control: {control}}}
capture: {{points: {points}}}
predict: []
counters: {{interval: 5us, ports: [s0]}}
"""
_KMIN, _KMAX = 100_000, 400_000
_MARKS = f"{{kind: red, kmin: {_KMIN}, kmax: {_KMAX}, pmax: 0.2, weight: 1, buffer: 16MB}}"
_PFC = "{kind: lossless, xoff: 300KB, xon: 280KB, buffer: 64MB}"
_MIB = 2**20
_WIRE_SHARE = 4096 / 4178
"""The share of payload in a full packet: 82 bytes are headers, preamble and gap."""


def _meet(
    home: Path,
    control: str,
    flows: int,
    size_bytes: int,
    queue: str = _MARKS,
    points: str = "[]",
    path: tuple[int, str] = (4096, "1us"),
) -> Streams:
    path_mtu, delay = path
    text = _SPEC.format(
        hosts=flows + 1,
        control=control,
        queue=queue,
        points=points,
        path_mtu=path_mtu,
        delay=delay,
    )
    streams = [Flow(source, flows, size_bytes) for source in range(flows)]
    found = run_streams(text, streams, home)
    assert found.result["valid"]
    assert found.result["summary"]["retries"] == 0
    assert found.result["summary"]["drops"] == 0
    return found


def _last_half(streams: Streams) -> tuple[int, int]:
    """While all flows were there, the start left out."""
    end_ns = min(each.acknowledged_ns[-1] for each in streams.flows)
    return end_ns // 2, end_ns


def test_two_dcqcn_flows_share_a_port_and_its_queue_is_where_it_marks(tmp_path: Path) -> None:
    streams = _meet(tmp_path, "dcqcn", 2, 48 * _MIB, points="[h0]")
    window = _last_half(streams)
    shares = streams.shares_bps(*window)
    assert jain(shares) >= 0.99
    assert sum(shares) > 0.9 * 100e9 * _WIRE_SHARE
    for share in shares:
        assert share == pytest.approx(sum(shares) / 2, rel=0.05)
    queue = [size for at, size in streams.queue("s0-eth2") if window[0] <= at <= window[1]]
    assert 0 < max(queue) < _KMAX
    summary = streams.result["summary"]
    assert summary["ecn_marks"] == summary["ce_packets"] > 0
    assert summary["cnps_sent"] == summary["cnps_received"] > 0
    assert summary["cnps_sent"] <= summary["ce_packets"]
    _assert_rates(streams)
    _assert_notifications(streams)


@pytest.mark.parametrize(
    ("queue", "least", "most"),
    [
        pytest.param("{kind: dctcp, k: 200KB, buffer: 16MB}", 0, 400_000, id="step"),
        pytest.param(_MARKS, 0, _KMAX, id="red", marks=pytest.mark.long),
    ],
)
def test_two_dctcp_flows_share_a_port_and_its_queue_is_where_it_marks(
    tmp_path: Path, queue: str, least: int, most: int
) -> None:
    """K is above C RTT / 7 (Alizadeh et al., SIGCOMM 2010), so that the port is never idle: 100
    Gb/s and 4 us are 50 kB. No CNP goes back: acknowledgements say what was marked."""
    streams = _meet(tmp_path, "dctcp", 2, 48 * _MIB, queue)
    window = _last_half(streams)
    shares = streams.shares_bps(*window)
    assert jain(shares) >= 0.99
    assert sum(shares) > 0.98 * 100e9 * _WIRE_SHARE
    waiting = [size for at, size in streams.queue("s0-eth2") if window[0] <= at <= window[1]]
    assert least < max(waiting) < most
    summary = streams.result["summary"]
    assert summary["ecn_marks"] == summary["ce_packets"] > 0
    assert summary["cnps_sent"] == summary["cnps_received"] == 0


def _assert_rates(streams: Streams) -> None:
    """The kernel's records: two queue pairs that began at line rate and were slowed down."""
    lines = [json.loads(line) for line in (streams.directory / "rates.jsonl").open()]
    by_host: dict[str, list[dict[str, int]]] = {}
    for line in lines:
        by_host.setdefault(line["host"], []).append(line)
    assert set(by_host) == {"h0", "h1"}
    for found in by_host.values():
        times = [each["time_ns"] for each in found]
        assert all(later - earlier >= 10_000 for earlier, later in pairwise(times))
        assert found[0]["rate_bps"] == 100 * 10**9
        assert min(each["rate_bps"] for each in found) >= 10**9


def _assert_notifications(streams: Streams) -> None:
    """They are on the wire, no more than one an interval, and cannot be marked. The drawing shows
    the captured part of them, where the others end."""
    capture = load_capture(load_run(streams.directory))
    assert capture is not None
    (told,) = notifications(capture)
    began_ns, ended_ns = streams.origin_ns, streams.origin_ns + streams.flows[0].acknowledged_ns[-1]
    assert all(began_ns < time_ns < ended_ns for time_ns in told.times_ns)
    (file,) = (streams.directory / "capture").glob("*.pcap")
    packets = read_pcap(file)
    roce = roce_packets(packets)
    came = roce.row[roce.opcode == Opcode.CNP]
    times = packets.timestamp_ns[came]
    assert len(times) == len(told.times_ns) > 1
    assert min(times[1:] - times[:-1]) >= 4_000 - 400  # one may have waited for a packet
    data = packets.tos[roce.row[roce.payload_bytes > 0]]
    assert set(map(int, data & 3)) == {2}  # as it leaves; ports mark it later
    assert set(map(int, packets.tos[came] & 3)) == {0}


def test_two_hpcc_flows_share_a_port_and_its_queue_is_near_nothing(tmp_path: Path) -> None:
    """Over a path that holds a hundred packets, as those of its paper do."""
    streams = _meet(tmp_path, "hpcc", 2, 6 * _MIB, path=(1024, "2500ns"))
    begin, end = _last_half(streams)
    shares = streams.shares_bps(begin, end)
    assert jain(shares) >= 0.99
    # 95% of the link; of 1,134 bytes of a packet 28 are telemetry and 82 other headers
    assert sum(shares) == pytest.approx(0.95 * 100e9 * 1024 / 1134, rel=0.02)
    queue = [size for at, size in streams.queue("s0-eth2") if begin <= at <= end]
    assert sum(queue) / len(queue) < _KMIN / 10
    assert streams.result["summary"]["ecn_marks"] == 0


def test_timely_keeps_round_trips_between_its_thresholds(tmp_path: Path) -> None:
    streams = _meet(tmp_path, "timely", 2, 32 * _MIB)
    begin, end = _last_half(streams)
    shares = streams.shares_bps(begin, end)
    assert jain(shares) >= 0.97
    assert sum(shares) > 0.8 * 100e9 * _WIRE_SHARE
    queue = [size for at, size in streams.queue("s0-eth2") if begin <= at <= end]
    assert max(queue) * 8 / 100e9 < 500e-6  # the upper threshold


def test_priority_flow_control_alone_loses_nothing_and_pauses(tmp_path: Path) -> None:
    streams = _meet(tmp_path, "none", 4, 4 * _MIB, _PFC)
    window = _last_half(streams)
    shares = streams.shares_bps(*window)
    assert sum(shares) == pytest.approx(100e9 * _WIRE_SHARE, rel=0.01)
    assert streams.result["summary"]["pauses"] > 0

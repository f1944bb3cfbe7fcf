"""Queueing from captures at both ends of a path."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import PcapWriter

from analysis.compare.decomposition import decompose
from analysis.compare.wire_delay import WireDelays
from analysis.predict.models.flow import Flow
from analysis.runs.collectives import collectives_of
from analysis.runs.run import RunError, load_run
from tests.predict.measured_run import write_run

_OFFSET_NS = 1_767_225_600_000_000_000


def _capture(path: Path, packets: list[tuple[int, int, int]]) -> None:
    """(time on the ranks' clock, sequence number, payload bytes) of packets from h0 to h1."""
    path.parent.mkdir(exist_ok=True)
    with PcapWriter(str(path), nano=True, linktype=1) as writer:
        for time_ns, sequence, size in packets:
            packet = (
                Ether(type=0x800)
                / IP(src="10.0.0.2", dst="10.0.0.3")
                / TCP(sport=40000, dport=50000, seq=sequence)
            )
            packet = packet / Raw(b"x" * size)
            packet.time = Decimal(time_ns + _OFFSET_NS) / 10**9
            writer.write(packet)


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    """One all-to-all that took 20 us longer than flow says."""
    directory = tmp_path / "run"
    write_run(
        directory, "{kind: flat, hosts: 8}", "{kind: all_to_all, size: 1MB}", Flow(), iterations=1
    )
    for path in (directory / "ranks").iterdir():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[1]["end_ns"] += 20_000
        path.write_text("\n".join(json.dumps(line) for line in lines))
    return directory


def test_queueing_is_what_exceeds_the_shortest_way(run_directory: Path) -> None:
    (collective,) = collectives_of(load_run(run_directory))
    end = collective.end_ns
    # The second packet waited 3 us; a notification and a packet seen once say nothing.
    sent = [(end - 20_000, 1, 1000), (end - 12_000, 1001, 1000), (end - 11_000, 2001, 48)]
    arrived = [(end - 15_000, 1, 1000), (end - 4_000, 1001, 1000), (end - 100, 2001, 48)]
    _capture(run_directory / "capture" / "h0-eth0.pcap", [*sent, (end - 10_000, 3001, 900)])
    _capture(run_directory / "capture" / "h1-eth0.pcap", arrived)
    index = run_directory / "capture" / "index.json"
    index.write_text(json.dumps({"clock_offset_ns": _OFFSET_NS}))
    run = load_run(run_directory)
    delays = WireDelays.of(run)
    assert delays.arrival_ns.tolist() == [end - 15_000, end - 4_000]
    assert delays.queued_ns.tolist() == [0, 3000]
    assert delays.last_queueing_ns(collective) == 3000
    (part,) = decompose(run)
    assert part.incast_ns == pytest.approx(3000)
    assert part.congestion_control_ns == pytest.approx(17_000, abs=2)
    index.write_text("{")
    with pytest.raises(RunError, match=r"index\.json"):
        WireDelays.of(run)


def test_captures_of_one_end_say_nothing(run_directory: Path) -> None:
    (collective,) = collectives_of(load_run(run_directory))
    _capture(run_directory / "capture" / "h0-eth0.pcap", [(collective.end_ns - 9, 1, 1000)])
    run = load_run(run_directory)
    assert WireDelays.of(run).last_queueing_ns(collective) is None
    assert decompose(run)[0].incast_ns is None

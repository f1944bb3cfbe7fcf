"""Capture in this machine's own kernel. Needs root."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.decode.tcp.pcap import read_pcap
from emulator.capture import CaptureError, CapturePort, capture_ports, start_capture
from emulator.capture.packet_filter import PacketFilter
from emulator.capture.packet_socket import Counter, shut
from emulator.capture.pcap_file import PcapFile
from emulator.capture.ring_socket import RingSocket
from emulator.linux.namespaces import entered
from tests.capture.veth_pair import (
    Pair,
    check_both_backends_agree,
    check_numbered_datagrams,
    paced_datagrams,
    veth_pair,
)
from tests.own_namespaces import MISSING
from topologies.fabrics.build import build_fabric
from topologies.spec.fabric_section import FatTreeSpec

needs_namespaces = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture
def pair() -> Iterator[Pair]:
    with veth_pair() as made:
        yield made


@needs_namespaces
def test_both_backends_agree_packet_for_packet(tmp_path: Path) -> None:
    check_both_backends_agree(tmp_path, exact_times=False)


@needs_namespaces
@pytest.mark.parametrize("backend", ["socket", "ring"])
def test_every_packet_once_and_in_order(tmp_path: Path, backend: str) -> None:
    check_numbered_datagrams(tmp_path, backend)


@needs_namespaces
@pytest.mark.parametrize("backend", ["socket", "ring"])
def test_a_filter_keeps_what_it_names(tmp_path: Path, pair: Pair, backend: str) -> None:
    capture = start_capture(pair.ports, tmp_path, 80, backend, "udp and dst port 6000")  # type: ignore[arg-type]
    pair.transfer(100_000)
    pair.datagrams(10, 500)
    assert [s.written for s in capture.stop()] == [10, 10]
    packets = read_pcap(tmp_path / "h0-eth0.pcap")
    assert packets.is_udp.all()
    assert set(packets.captured_bytes.tolist()) == {80}
    assert set(packets.wire_bytes.tolist()) == {542}


@needs_namespaces
def test_the_index_accounts_and_joins_the_clocks(tmp_path: Path, pair: Pair) -> None:
    before = time.monotonic_ns()
    with start_capture(pair.ports, tmp_path, backend="ring") as capture:
        pair.datagrams(5, 100)
        stats = capture.stop()
    after = time.monotonic_ns()
    index = json.loads((tmp_path / "index.json").read_text())
    assert index["captures"] == [s.as_dict() for s in stats]
    assert (index["backend"], index["snaplen"], index["filter"]) == ("ring", 160, None)
    packets = read_pcap(tmp_path / stats[0].file)
    logged = packets.timestamp_ns[packets.is_udp] - index["clock_offset_ns"]
    assert (logged > before - 1_000_000).all() and (logged < after + 1_000_000).all()
    assert stats[0].file_bytes == (tmp_path / stats[0].file).stat().st_size


@needs_namespaces
def test_packets_that_found_no_room_are_counted(tmp_path: Path, pair: Pair) -> None:
    """A ring of 256 packets that nobody reads: the rest must be owned up to."""
    port = pair.ports[0]
    with entered(port.netns_path):
        ring = RingSocket(port.interface, 160, PacketFilter.keep(160), 256)
    file = PcapFile(tmp_path / port.file_name, 160)
    counter = Counter(ring.socket)
    ring.open()
    pair.datagrams(1000, 100)
    shut(ring.socket)
    while ring.drain(file):
        pass
    counter.read()
    ring.close()
    file.close()
    assert counter.seen == 1000 or counter.seen > 1000  # and the odd neighbour message
    assert counter.dropped >= 1000 - 256
    assert file.packets == counter.seen - counter.dropped == 256


@needs_namespaces
def test_a_time_stamp_is_taken_behind_the_queue(tmp_path: Path) -> None:
    # A busy machine sends later than the bucket allows, never earlier.
    for spread_ns, limit_ns in paced_datagrams(tmp_path):
        assert spread_ns > 0.98 * limit_ns


@needs_namespaces
@pytest.mark.parametrize("backend", ["socket", "ring"])
def test_errors_name_the_port_and_the_kernels_reason(
    tmp_path: Path, pair: Pair, backend: str
) -> None:
    absent = CapturePort("h0", "h0-eth7", pair.ports[0].netns_path, 10**10)
    with pytest.raises(CaptureError, match=r"h0-eth7 of h0: No such device"):
        start_capture([absent], tmp_path, backend=backend)  # type: ignore[arg-type]
    gone = CapturePort("h9", "eth0", tmp_path / "no-such-namespace", 10**10)
    with pytest.raises(CaptureError, match=r"eth0 of h9: No such file or directory"):
        start_capture([gone], tmp_path, backend=backend)  # type: ignore[arg-type]
    with pytest.raises(CaptureError, match=r"capture filter 'tcp and and'"):
        start_capture(pair.ports, tmp_path, 160, backend, "tcp and and")  # type: ignore[arg-type]


@needs_namespaces
def test_a_dead_capture_process_is_an_error(tmp_path: Path, pair: Pair) -> None:
    capture = start_capture(pair.ports, tmp_path, backend="ring")
    os.kill(capture.process_id, signal.SIGKILL)
    with pytest.raises(CaptureError, match="ended by itself"):
        capture.stop()


def test_points_of_a_spec_are_ports_each_once() -> None:
    fabric = build_fabric(FatTreeSpec(kind="fat-tree", k=4))
    ports = capture_ports(fabric, ["h0", "hosts", "h0-eth0"], lambda node: Path("/ns") / node)
    assert len(ports) == 16
    assert (ports[0].node, ports[0].interface) == ("h0", "h0-eth0")
    assert ports[0].netns_path == Path("/ns/h0")
    assert ports[0].file_name == "h0-eth0.pcap"
    pod = capture_ports(fabric, ["host:pod1"], lambda node: Path("/ns") / node)
    assert len(pod) == 4
    with pytest.raises(ValueError, match="expected"):
        capture_ports(fabric, ["no-such-node"], lambda node: Path("/ns") / node)


def test_file_names_hold_node_and_interface() -> None:
    assert CapturePort("h0", "eth0", Path("/"), 10**10).file_name == "h0-eth0.pcap"
    assert CapturePort("h0", "h0-eth0", Path("/"), 10**10).file_name == "h0-eth0.pcap"

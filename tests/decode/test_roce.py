"""RoCEv2 captures: headers against scapy, and every byte against truth known by construction."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import PcapReader

from analysis.decode.attribution import Attribution, AttributionError, attribute
from analysis.decode.gloo.connection_groups import LoggedCollective
from analysis.decode.ledger import Purpose
from analysis.decode.phase_bytes import bytes_by_phase
from analysis.decode.roce.packets import roce_packets
from analysis.decode.roce.queue_pair_metrics import queue_pair_metrics
from analysis.decode.roce.queue_pairs import queue_pairs
from analysis.decode.roce.scapy_layers import RETH, Bitmap, ImmediateData
from analysis.decode.roce.wire_format import NAK_SEQUENCE_ERROR, TRAITS, Trait
from analysis.decode.tcp.pcap import CaptureFormatError, read_pcap
from collectives.algorithms import algorithm
from collectives.chunking import Chunking, cut
from collectives.kinds import Kind, Shape
from tests.decode.synthetic_gloo import write_pcap
from tests.decode.synthetic_roce import HEADERS, RoceWire
from tests.decode.test_attribution import check_sums

WORD = st.integers(0, 2**32 - 1)


@st.composite
def frames(draw: st.DrawFn) -> Packet:
    opcode = draw(st.sampled_from(sorted(TRAITS)))
    traits = TRAITS[opcode]
    payload = draw(st.binary(max_size=40)) if traits & Trait.CARRIES else b""
    pad = -len(payload) % 4
    packet = BTH(
        opcode=opcode.value, padcount=pad, dqpn=draw(st.integers(0, 2**24 - 1)),
        psn=draw(st.integers(0, 2**24 - 1)), ackreq=draw(st.integers(0, 1)),
        solicited=draw(st.integers(0, 1)), becn=draw(st.integers(0, 1)),
    )  # fmt: skip
    if traits & Trait.RETH:
        packet /= RETH(
            virtual_address=draw(st.integers(0, 2**64 - 1)),
            rkey=draw(WORD),
            dma_length=draw(WORD),
        )
    if traits & Trait.AETH:
        packet /= AETH(syndrome=draw(st.integers(0, 255)), msn=draw(st.integers(0, 2**24 - 1)))
    if traits & Trait.BITMAP:
        packet /= Bitmap(
            answers=draw(st.integers(0, 2**24 - 1)), came=draw(st.integers(0, 2**64 - 1))
        )
    if traits & Trait.IMMEDIATE:
        packet /= ImmediateData(immediate=draw(WORD))
    if payload:
        packet /= Raw(payload + bytes(pad))
    return Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=50_000, dport=4791) / packet


@settings(max_examples=40, deadline=None)
@given(packets=st.lists(frames(), min_size=1, max_size=5))
def test_same_fields_as_scapy(
    packets: list[Packet], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("roce") / "a.pcap"
    write_pcap(path, [(1_000 * n, bytes(packet)) for n, packet in enumerate(packets)])
    ours = roce_packets(read_pcap(path))
    theirs = [packet[BTH] for packet in PcapReader(str(path))]
    assert len(ours) == len(theirs) == len(packets)
    for place, bth in enumerate(theirs):
        assert (ours.opcode[place], ours.destination_qp[place], ours.psn[place]) == (
            bth.opcode, bth.dqpn, bth.psn,
        )  # fmt: skip
        assert bool(ours.asks[place]) == bool(bth.ackreq)
        reth, aeth, immediate = (bth.getlayer(layer) for layer in (RETH, AETH, ImmediateData))
        assert (ours.virtual_address[place], ours.rkey[place], ours.dma_length[place]) == (
            (reth.virtual_address, reth.rkey, reth.dma_length) if reth else (0, 0, 0)
        )
        assert ours.immediate[place] == (immediate.immediate if immediate else 0)
        assert (ours.syndrome[place], ours.message_number[place]) == (
            (aeth.syndrome, aeth.msn) if aeth else (0, 0)
        )
        raw = bth.getlayer(Raw)
        assert ours.payload_bytes[place] == (len(raw) - bth.padcount if raw else 0)


FIRST_SLOT = 1 << 24


def ring_of_two(chunks: int, size_bytes: int) -> LoggedCollective:
    """An all-reduce of two ranks as a program."""
    found = cut(
        Shape(Kind.ALL_REDUCE, size_bytes, 2, 4), algorithm("ring"), Chunking(chunks=chunks)
    )
    slots = FIRST_SLOT, found.slots_per_chunk * len(found.chunks)
    return LoggedCollective(
        "ar", "all_reduce", "default", None, size_bytes, 0, "", (0, 1), schedule=found, slots=slots
    )


def exchange(wire: RoceWire, collective: LoggedCollective, seed: int, losses: bool) -> None:
    """Its messages, each after its credit; with losses packets are sent again, after a NAK or
    without one."""
    assert collective.schedule is not None
    chance = random.Random(seed)
    messages = list(collective.schedule.numbered_messages())
    chance.shuffle(messages)
    for message in messages:
        side, slot = message.source, FIRST_SLOT + message.slot
        credit = wire.credit(1 - side, slot)
        if chance.random() < 0.5:
            wire.answer(side, credit)
        psns = wire.write(side, slot, message.size_bytes)
        if losses and chance.random() < 0.3:
            lost = chance.choice(psns)
            if chance.random() < 0.7:
                wire.answer(1 - side, lost, NAK_SEQUENCE_ERROR)
            for psn in psns[psns.index(lost) :]:
                wire.repeat(side, psn)
        wire.answer(1 - side, psns[-1])
    if losses:
        wire.notify(chance.randrange(2))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000),
    chunks=st.integers(1, 3),
    size_bytes=st.sampled_from([8, 4_000, 10_004]),
    path_mtu=st.sampled_from([256, 1024, 4096]),
    snaplen=st.sampled_from([114, 160, 65_535]),
    losses=st.booleans(),
    logged=st.booleans(),
)
def test_every_byte_against_the_truth(
    seed: int,
    chunks: int,
    size_bytes: int,
    path_mtu: int,
    snaplen: int,
    losses: bool,
    logged: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Numbers of packets pass 2^24 on the way (`start_psns`)."""
    wire = RoceWire(path_mtu=path_mtu)
    collective = ring_of_two(chunks, size_bytes)
    exchange(wire, collective, seed, losses)
    path = wire.write_pcap(tmp_path_factory.mktemp("roce") / "a.pcap", snaplen)
    result = attribute(
        [read_pcap(path)], [collective], {}, None, {"roce": [wire.logged] if logged else []}
    )
    check_sums(result)
    assert result.unattributed_bytes == result.assumed_bytes == 0
    (connection,) = result.connections
    assert connection.unattributed_bytes == 0
    ledger = result.ledger
    found: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(ledger.purpose == Purpose.DATA).tolist():
        key = int(ledger.direction[row]), int(ledger.tag[row] << 24 | ledger.delta[row])
        found[key] = found.get(key, 0) + int(ledger.column("data_bytes")[row])
    assert found == dict(wire.messages)
    if logged:
        rows = [row for row in result.by_collective() if row.collective is not None]
        assert [row.collective for row in rows] == [collective]
        assert rows[0].messages == len(wire.messages)
        # A message that is no notification is the collective's.
        others = sum(row.wire_bytes for row in result.by_collective()) - rows[0].wire_bytes
        assert others == (HEADERS + 16 if losses else 0)
        assert sum(phase.wire_bytes for phase in bytes_by_phase(result)) == rows[0].wire_bytes
        assert sum(phase.data_bytes for phase in bytes_by_phase(result)) == rows[0].data_bytes
        assert rows[0].preamble_bytes == 16 * len(wire.messages)


def capture(wire: RoceWire, path: Path, snaplen: int = 160) -> Attribution:
    return attribute([read_pcap(wire.write_pcap(path, snaplen))])


def test_what_is_sent_again_is_counted_apart(tmp_path: Path) -> None:
    wire = RoceWire()
    psns = wire.write(0, FIRST_SLOT, 5_000)
    (clean,) = capture(wire, tmp_path / "a.pcap").by_collective()
    assert (clean.packets, clean.data_bytes) == (5, 5_000)
    assert clean.header_bytes == 5 * HEADERS + 16 + 4
    wire.answer(1, psns[3], NAK_SEQUENCE_ERROR)
    wire.repeat(0, psns[3])
    wire.repeat(0, psns[4])
    wire.answer(1, psns[4])
    result = capture(wire, tmp_path / "b.pcap")
    check_sums(result)
    (repeated,) = result.by_collective()
    assert (repeated.data_bytes, repeated.retransmitted_bytes) == (5_000, 5_000 - 3 * 1024)
    assert (repeated.ack_packets, repeated.ack_bytes) == (2, 2 * (HEADERS + 4))
    there, back = queue_pair_metrics(result)
    assert (there.packets, there.retransmitted_packets, there.sequence_naks) == (7, 2, 0)
    assert (back.packets, back.acknowledgements, back.sequence_naks) == (0, 1, 1)


def test_kinds_of_naks_and_notifications_are_told_apart(tmp_path: Path) -> None:
    wire = RoceWire()
    credit = wire.credit(0, FIRST_SLOT)
    wire.answer(1, credit, 0x20 | 14)
    wire.answer(1, credit, NAK_SEQUENCE_ERROR)
    wire.answer(1, credit)
    wire.notify(1)
    wire.notify(1)
    result = capture(wire, tmp_path / "a.pcap")
    check_sums(result)
    there, back = queue_pair_metrics(result)
    assert (there.sequence_naks, there.not_ready_naks, there.cnps) == (0, 0, 0)
    assert (back.sequence_naks, back.not_ready_naks, back.cnps) == (1, 1, 2)
    kinds = {row.kind: row.wire_bytes for row in result.by_collective()}
    assert kinds["congestion-notification"] == 2 * (HEADERS + 16)


def test_the_same_packets_captured_twice_count_once(tmp_path: Path) -> None:
    """At the sender's port and at the receiver's, where one was lost on the way."""
    wire = RoceWire()
    collective = ring_of_two(2, 16_384)
    exchange(wire, collective, 3, losses=False)
    there = read_pcap(wire.write_pcap(tmp_path / "a.pcap"))
    wire.packets = [(time + 500, frame) for time, frame in wire.packets]
    lost = next(i for i, (_, frame) in enumerate(wire.packets) if len(frame) > 1_000)
    del wire.packets[lost]
    here = read_pcap(wire.write_pcap(tmp_path / "b.pcap"))
    once = attribute([there], [collective], {}, None, {"roce": [wire.logged]})
    twice = attribute([there, here], [collective], {}, None, {"roce": [wire.logged]})
    check_sums(twice)
    assert twice.by_collective() == once.by_collective()
    assert twice.unattributed_bytes == 0


def test_a_message_whose_end_was_not_captured_is_said_to_be_unknown(tmp_path: Path) -> None:
    wire = RoceWire()
    wire.write(0, FIRST_SLOT, 3_000)
    wire.write(0, FIRST_SLOT + 1, 3_000)
    del wire.packets[2]  # the last packet of the first, which has its immediate
    result = capture(wire, tmp_path / "a.pcap")
    check_sums(result)
    assert result.connections[0].unattributed_bytes == 2 * 1024
    assert result.unattributed_bytes == 2 * (1024 + HEADERS) + 16
    del wire.packets[2]  # and the first of the second: what is left of it is known by its end
    result = capture(wire, tmp_path / "b.pcap")
    assert result.connections[0].unattributed_bytes == 2 * 1024


def test_without_a_log_queue_pairs_are_found_by_the_port_they_send_from(tmp_path: Path) -> None:
    wires = [RoceWire(numbers=(17, 40)), RoceWire(numbers=(18, 41)), RoceWire(numbers=(19, 39))]
    for number, wire in enumerate(wires):
        wire.answer(1, wire.write(0, FIRST_SLOT + number, 2_000)[-1])
    wires[0].packets = sorted(packet for wire in wires for packet in wire.packets)
    found = queue_pairs([read_pcap(wires[0].write_pcap(tmp_path / "a.pcap"))])
    pairs = [tuple(end.number for end in each.ends) for each in found]
    assert pairs == [(17, 40), (18, 41), (19, 39)]
    assert all(each.directions[0].length_bytes == 2_000 for each in found)


@settings(max_examples=40, deadline=None)
@given(
    cuts=st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 255)), max_size=12),
    size=st.integers(0, 100_000),
    seed=st.integers(0, 20),
    logged=st.booleans(),
)
def test_damaged_captures_raise_only_our_errors(
    cuts: list[tuple[int, int]],
    size: int,
    seed: int,
    logged: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    wire = RoceWire()
    exchange(wire, ring_of_two(2, 16_384), seed, losses=True)
    path = wire.write_pcap(tmp_path_factory.mktemp("damaged") / "a.pcap")
    content = bytearray(path.read_bytes())
    for at, value in cuts:
        content[at % len(content)] = value
    path.write_bytes(content[: max(size, 24)] if size < len(content) else content)
    try:
        check_sums(
            attribute([read_pcap(path)], (), {}, None, {"roce": [wire.logged] if logged else []})
        )
    except (CaptureFormatError, AttributionError) as error:
        assert str(path) in str(error)


@settings(max_examples=30, deadline=None)
@given(payloads=st.lists(st.binary(max_size=120), max_size=8))
def test_garbage_sent_to_the_port_is_survived(
    payloads: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("garbage") / "a.pcap"
    udp = Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=50_000, dport=4791)
    write_pcap(path, [(n, bytes(udp / Raw(each))) for n, each in enumerate(payloads)])
    check_sums(attribute([read_pcap(path)]))

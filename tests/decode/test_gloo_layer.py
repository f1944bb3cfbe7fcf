"""Preambles: exact both ways, in plain Python and as a scapy layer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import TCP
from scapy.packet import Raw
from scapy.utils import rdpcap

from analysis.decode.gloo.scapy_layer import Gloo, GlooHello, gloo_messages
from analysis.decode.gloo.wire_format import (
    GlooFormatError,
    Opcode,
    Preamble,
    Prefix,
    Slot,
    is_preamble,
)
from collectives.schedule.gloo import PREAMBLE_BYTES
from tests.decode.synthetic_gloo import Transfer, Wire, converse

SLOTS = st.builds(
    Slot, st.integers(0, 2**8 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**24 - 1)
)
TORCH_SLOTS = st.builds(Slot, st.sampled_from(Prefix), st.integers(0, 2**32 - 1), st.just(0))


@st.composite
def preambles(draw: st.DrawFn, slots: st.SearchStrategy[Slot] = SLOTS) -> Preamble:
    opcode = draw(st.sampled_from(Opcode))
    length = draw(st.integers(0, 2**40))
    nbytes = PREAMBLE_BYTES + (length if opcode <= Opcode.SEND_UNBOUND_BUFFER else 0)
    offsets = draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**64 - 1))
    return Preamble(nbytes, opcode, draw(slots), offsets[0], length, offsets[1])


@given(preamble=preambles())
def test_preamble_survives_encoding(preamble: Preamble) -> None:
    assert Preamble.decode(preamble.encode()) == preamble


@given(value=st.integers(0, 2**64 - 1))
def test_every_slot_survives_decoding(value: int) -> None:
    assert Slot.decode(value).encode() == value


def test_slot_layout_is_gloos() -> None:
    # kAllreduceSlotPrefix 4, tag 9, as captured: 0x04000009_00000000 >> 8.
    assert Slot(Prefix.ALLREDUCE, 9, 0).encode() == 0x0400000009000000
    assert Slot.decode(7).user_tag == 7


@given(data=st.binary(max_size=120))
def test_garbage_raises_only_our_error(data: bytes) -> None:
    try:
        preamble = Preamble.decode(data)
    except GlooFormatError:
        assert not is_preamble(data)
    else:
        assert preamble.encode() == data[:PREAMBLE_BYTES]


@pytest.mark.parametrize("size", [0, 8, 47])
def test_a_short_preamble_is_refused(size: int) -> None:
    whole = Preamble(48, Opcode.NOTIFY_SEND_READY, Slot(4, 1, 0), 0, 8, 0).encode()
    with pytest.raises(GlooFormatError, match=f"{size} bytes"):
        Preamble.decode(whole[:size])


@given(preamble=preambles(), data=st.binary(max_size=64))
def test_scapy_layer_agrees_with_the_wire_format(preamble: Preamble, data: bytes) -> None:
    layer = Gloo(preamble.encode() + data)
    assert (layer.nbytes, layer.opcode, layer.slot) == (
        preamble.nbytes, preamble.opcode, preamble.slot,
    )  # fmt: skip
    assert (layer.offset, layer.length, layer.roffset) == (
        preamble.offset, preamble.length, preamble.roffset,
    )  # fmt: skip
    assert layer.data == data[: preamble.data_bytes]
    assert bytes(layer) == preamble.encode() + data


@given(slot=TORCH_SLOTS, data=st.binary(max_size=64))
def test_scapy_layer_fills_in_the_lengths(slot: Slot, data: bytes) -> None:
    built = bytes(Gloo(prefix=slot.prefix, tag=slot.tag, delta=slot.delta, data=data))
    expected = Preamble(
        PREAMBLE_BYTES + len(data), Opcode.SEND_UNBOUND_BUFFER, slot, 0, len(data), 0
    )
    assert built == expected.encode() + data


def test_messages_behind_each_other_are_all_shown() -> None:
    slot = Slot(Prefix.ALLREDUCE, 3, 0)
    sent = Preamble(48 + 5, Opcode.SEND_UNBOUND_BUFFER, slot, 0, 5, 0).encode() + b"hello"
    ready = Preamble(48, Opcode.NOTIFY_RECV_READY, slot, 0, 5, 0).encode()
    decoded = TCP(bytes(TCP() / Raw(ready + sent + ready)))
    chain = [decoded.getlayer(Gloo, nb=number).opcode for number in (1, 2, 3)]
    assert chain == [3, 1, 3]
    assert decoded.getlayer(Gloo, nb=2).data == b"hello"
    assert "allreduce tag 3" in decoded.getlayer(Gloo, nb=2).mysummary()


def test_other_payloads_stay_raw() -> None:
    for payload in (b"GET / HTTP/1.1\r\n\r\n" + bytes(60), bytes(48), b"\xff" * 48):
        assert TCP(bytes(TCP(dport=5000) / Raw(payload))).payload.__class__ is Raw


def test_rdpcap_shows_gloo(three_ranks: Path) -> None:
    layers = [
        packet[Gloo] for packet in rdpcap(str(three_ranks / "h0-eth0.pcap")) if Gloo in packet
    ]
    kinds = {layer.sprintf("%prefix%") for layer in layers}
    assert {"barrier", "allreduce", "broadcast", "alltoall", "gather", "user"} <= kinds
    first = next(layer for layer in layers if layer.prefix == Prefix.ALLREDUCE)
    assert first.tag == 1  # the barrier before it was the group's collective number 0


def test_whole_messages_are_put_together(tmp_path: Path) -> None:
    slot = Slot(Prefix.ALLTOALL, 5, 0)
    transfers = [Transfer(side, slot, size) for side, size in ((0, 5000), (1, 3000)) * 3]
    sides = converse(transfers, seed=1)
    wire = Wire()
    wire.carry(sides, mss=1000, seed=1, losses=True)
    for snaplen in (65_535, 160):
        path = wire.write_pcap(tmp_path / f"{snaplen}.pcap", snaplen)
        messages = gloo_messages(path)
        assert len(messages) == 18
        data = [m for m in messages if m.packet.opcode == Opcode.SEND_UNBOUND_BUFFER]
        assert sorted(m.packet.length for m in data) == [3000] * 3 + [5000] * 3
        assert {m.packet.slot for m in messages} == {slot}
        if snaplen == 65_535:
            written = b"".join(bytes(side.stream) for side in sides)
            assert all(bytes(m.packet) in written and not m.inferred for m in messages)


def test_hello_is_the_connecting_rank() -> None:
    assert GlooHello(bytes(GlooHello(rank=5))).rank == 5

"""Every byte attributed: against truth known by construction, and on real captures."""

from __future__ import annotations

import random
import struct
from collections import Counter, defaultdict
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from analysis.decode.attribution import Attribution, AttributionError, attribute
from analysis.decode.gloo.connection_groups import LoggedCollective
from analysis.decode.gloo.exchanges import Expected
from analysis.decode.gloo.rendezvous import resolve
from analysis.decode.gloo.stream import walk
from analysis.decode.gloo.wire_format import Opcode, Prefix, Slot
from analysis.decode.tcp.assembly import connections
from analysis.decode.tcp.pcap import CaptureFormatError, read_pcap
from analysis.decode.tcp.stream import TcpConnection
from collectives.schedule.gloo import PREAMBLE_BYTES
from tests.decode.recorded_log import read_log
from tests.decode.synthetic_gloo import Transfer, Wire, converse
from topologies.spec.run_sections import MINIMUM_SNAPLEN

HEADERS = 66  # Ethernet 14, IPv4 20, TCP with time stamps 32

# One slot after the other, as collectives follow each other, each with one size of data.
COLLECTIVES = st.lists(
    st.tuples(
        st.sampled_from([Prefix.ALLREDUCE, Prefix.ALLTOALL, Prefix.BROADCAST]),
        st.integers(0, 1),
        st.booleans(),
        st.sampled_from([0, 4, 900, 2_100, 6_004, 15_000]),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=5,
)


def transfers_of(
    collectives: list[tuple[Prefix, int, bool, int, int]],
) -> list[Transfer]:
    return [
        Transfer(place, Slot(prefix, tag, 0), size)
        for tag, (prefix, side, both, size, count) in enumerate(collectives)
        for _ in range(count)
        for place in ((0, 1) if both else (side,))
    ]


def check_sums(result: Attribution) -> None:
    """The sums that hold for any capture: the ledger is the capture."""
    for number, file in enumerate(result.files):
        mine = sum(row.wire_bytes for row in result.by_collective(file=number))
        assert mine == file.data_connection_bytes
        assert file.data_connection_bytes + file.other_tcp_bytes + file.other_bytes == (
            file.wire_bytes
        )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    collectives=COLLECTIVES,
    seed=st.integers(0, 10_000),
    mss=st.sampled_from([536, 1448, 8948]),
    snaplen=st.sampled_from([MINIMUM_SNAPLEN, 160, 400, 65_535]),
    losses=st.booleans(),
    overlap=st.booleans(),
)
@example(  # the gap before the last slot was repeated when that slot was in use
    collectives=[
        (Prefix.ALLREDUCE, 0, True, 0, 2),
        (Prefix.ALLREDUCE, 0, False, 6_004, 4),
        (Prefix.ALLREDUCE, 0, True, 6_004, 2),
    ],
    seed=14,
    mss=536,
    snaplen=160,
    losses=True,
    overlap=False,
)
def test_cut_captures_against_the_truth(
    collectives: list[tuple[Prefix, int, bool, int, int]],
    seed: int,
    mss: int,
    snaplen: int,
    losses: bool,
    overlap: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    transfers = transfers_of(collectives)
    sides = converse(transfers, seed, overlap=overlap)
    wire = Wire()
    wire.carry(sides, mss, seed, losses)
    path = wire.write_pcap(tmp_path_factory.mktemp("cut") / "a.pcap", snaplen)
    result = attribute([read_pcap(path)])
    check_sums(result)
    assert result.files[0].wire_bytes == sum(len(frame) for _, frame in wire.packets)
    if snaplen == 65_535:
        assert result.assumed_bytes == result.unattributed_bytes == 0
        assert sum(c.inferred_messages for c in result.connections) == 0
    if result.assumed_bytes or result.unattributed_bytes:
        return  # said so; nothing more is promised
    if overlap and any(c.inferred_messages for c in result.connections):
        return  # a slot of which nothing at all was captured cannot be known of
    expected: Counter[tuple[int, int]] = Counter()
    for transfer in transfers:
        expected[(transfer.slot.prefix, transfer.slot.tag)] += transfer.size
    found = {
        (Prefix[row.kind.upper()].value, row.tag): row
        for row in result.by_collective()
        if row.kind not in ("set-up", "teardown")
    }
    assert {key: row.data_bytes for key, row in found.items()} == dict(expected)
    messages = Counter((t.slot.prefix, t.slot.tag) for t in transfers)
    assert {key: row.preamble_bytes for key, row in found.items()} == {
        key: 3 * PREAMBLE_BYTES * count for key, count in messages.items()
    }
    assert {key: row.messages for key, row in found.items()} == dict(messages)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    collectives=COLLECTIVES,
    seed=st.integers(0, 10_000),
    mss=st.sampled_from([1448, 8948]),
    snaplen=st.sampled_from([MINIMUM_SNAPLEN, 160]),
)
def test_a_log_settles_what_overlaps(
    collectives: list[tuple[Prefix, int, bool, int, int]],
    seed: int,
    mss: int,
    snaplen: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Told which messages there were, the right ones are found even where slots overlap."""
    transfers = transfers_of(collectives)
    sides = converse(transfers, seed, overlap=True)
    wire = Wire()
    wire.carry(sides, mss, seed, losses=False)
    path = wire.write_pcap(tmp_path_factory.mktemp("log") / "a.pcap", snaplen)
    (connection,) = connections([read_pcap(path)])
    streams = walk(connection.forward, True), walk(connection.backward, False)
    sizes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for transfer in transfers:
        sizes[(transfer.side, transfer.slot.encode())].append(transfer.size)
    outcome = resolve(*streams, {key: Expected(tuple(value)) for key, value in sizes.items()})
    if outcome.assumed_bytes or outcome.unresolved_bytes:
        return
    for side, stream in enumerate(streams):
        found = Counter((m.opcode, m.slot, m.nbytes) for m in stream.messages)
        written = Counter((p.opcode, p.slot.encode(), p.nbytes) for _, p in sides[side].messages)
        assert found == written


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_hidden_messages_lie_in_the_order_in_which_they_were_received(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """A long segment hides where the data of three collectives lie in it; the log says in which
    order they were received."""
    prefixes = (Prefix.ALLREDUCE, Prefix.ALLTOALL, Prefix.BROADCAST)
    slots = [(Slot(prefix, tag, 0), 900 * tag) for tag, prefix in enumerate(prefixes, 1)]
    data = [slots[number] for number in order]
    sides = converse([], seed=0)
    rng = random.Random(0)
    for slot, size in data:
        sides[0].write(Opcode.NOTIFY_SEND_READY, slot, size, 0, rng)
        sides[1].write(Opcode.NOTIFY_RECV_READY, slot, size, 0, rng)
    for slot, size in data:
        sides[0].write(Opcode.SEND_UNBOUND_BUFFER, slot, size, len(sides[1].stream), rng)
    wire = Wire()
    wire.carry(sides, 8_948, 0, losses=False)
    path = wire.write_pcap(tmp_path / "a.pcap", MINIMUM_SNAPLEN)
    (connection,) = connections([read_pcap(path)])
    streams = walk(connection.forward, True), walk(connection.backward, False)
    received_ns = {slot.encode(): number for number, (slot, _) in enumerate(data, wire.time_ns)}
    resolve(
        *streams,
        {
            (0, slot.encode()): Expected((size,), 1, wire.time_ns, received_ns[slot.encode()])
            for slot, size in data
        },
    )
    assert sum(message.inferred for message in streams[0].messages) >= 2
    found = [(m.slot, m.nbytes) for m in streams[0].messages if m.nbytes > PREAMBLE_BYTES]
    assert found == [(slot.encode(), PREAMBLE_BYTES + size) for slot, size in data]


def test_inference_is_needed_and_right(tmp_path: Path) -> None:
    """The case above is no empty promise: at 160 bytes most preambles are cut off."""
    transfers = [Transfer(0, Slot(Prefix.ALLREDUCE, 3, 0), 15_000) for _ in range(40)]
    wire = Wire()
    wire.carry(converse(transfers, seed=5), mss=8948, seed=5, losses=False)
    result = attribute([read_pcap(wire.write_pcap(tmp_path / "a.pcap", 160))])
    (connection,) = result.connections
    assert connection.messages == 120
    assert connection.inferred_messages > 20
    assert result.assumed_bytes == result.unattributed_bytes == 0
    (row,) = [r for r in result.by_collective() if r.kind == "allreduce"]
    assert (row.messages, row.data_bytes) == (40, 600_000)


def test_retransmissions_are_counted_apart(tmp_path: Path) -> None:
    transfers = [Transfer(0, Slot(Prefix.ALLREDUCE, 0, 0), 5_000)]
    sides = converse(transfers, seed=1)
    wire = Wire()
    wire.carry(sides, mss=1000, seed=1, losses=False)
    before = attribute([read_pcap(wire.write_pcap(tmp_path / "a.pcap", 160))]).by_collective()
    wire.packet(0, 0x10, 1008, bytes(sides[0].stream[1008:1708]))
    result = attribute([read_pcap(wire.write_pcap(tmp_path / "b.pcap", 160))])
    check_sums(result)
    clean, repeated = (
        next(row for row in rows if row.kind == "allreduce")
        for rows in (before, result.by_collective())
    )
    assert (clean.retransmitted_bytes, repeated.retransmitted_bytes) == (0, 700)
    assert repeated.data_bytes == clean.data_bytes == 5_000
    assert repeated.wire_bytes - clean.wire_bytes == 700 + HEADERS


def test_the_same_packets_captured_twice_count_once(tmp_path: Path) -> None:
    transfers = [Transfer(side, Slot(Prefix.ALLREDUCE, 0, 0), 5_000) for side in (0, 1)]
    wire = Wire()
    wire.carry(converse(transfers, seed=2), mss=1000, seed=2, losses=False)
    there = wire.write_pcap(tmp_path / "a.pcap", 160)
    wire.packets = [(time + 500, frame) for time, frame in wire.packets]
    here = wire.write_pcap(tmp_path / "b.pcap", 160)
    once = attribute([read_pcap(there)])
    twice = attribute([read_pcap(there), read_pcap(here)])
    check_sums(twice)
    assert twice.by_collective() == once.by_collective() == twice.by_collective(file=1)


def test_copies_of_a_segment_that_disagree_are_survived(tmp_path: Path) -> None:
    transfers = [Transfer(0, Slot(Prefix.ALLREDUCE, 0, 0), 900) for _ in range(4)]
    sides = converse(transfers, seed=1)
    wire = Wire()
    wire.carry(sides, mss=500, seed=1, losses=False)
    start, preamble = sides[0].messages[2]
    spoilt = b"\xff" * 20 + preamble.encode()[20:]
    wire.packets.insert(8, wire.packets[-1])
    wire.packet(0, 0x10, start, spoilt)
    check_sums(attribute([read_pcap(wire.write_pcap(tmp_path / "a.pcap", 160))]))


def test_a_snap_length_without_preambles_is_refused(tmp_path: Path) -> None:
    transfers = [Transfer(0, Slot(Prefix.ALLREDUCE, 0, 0), 5_000)]
    wire = Wire()
    wire.carry(converse(transfers, seed=1), mss=1000, seed=1, losses=False)
    with pytest.raises(AttributionError, match=f"snaplen 100.*at least {MINIMUM_SNAPLEN}"):
        attribute([read_pcap(wire.write_pcap(tmp_path / "a.pcap", 100))])


def test_a_capture_begun_too_late_says_so(tmp_path: Path) -> None:
    """Without the handshake the stream has no beginning: the bytes before the first preamble
    found are reported, not guessed."""
    transfers = [Transfer(0, Slot(Prefix.ALLREDUCE, 0, 0), 5_000) for _ in range(6)]
    wire = Wire()
    sides = converse(transfers, seed=3)
    wire.carry(sides, mss=1000, seed=3, losses=False)
    first_data = next(p for _, p in sides[0].messages if p.data_bytes).encode()
    seen = next(i for i, (_, frame) in enumerate(wire.packets) if first_data in frame)
    wire.packets = wire.packets[seen + 1 :]
    result = attribute([read_pcap(wire.write_pcap(tmp_path / "a.pcap", 160))])
    check_sums(result)
    assert result.unattributed_bytes > 0
    connection = result.connections[0].connection
    assert isinstance(connection, TcpConnection)
    assert not any(direction.origin_known for direction in connection.directions)


@pytest.mark.parametrize("capture", ["three_ranks", "two_ranks_shaped"])
def test_real_captures_leave_nothing_over(capture: str, request: pytest.FixtureRequest) -> None:
    directory = request.getfixturevalue(capture)
    log = read_log(directory)
    files = [read_pcap(path) for path in sorted(directory.glob("*.pcap"))]
    result = attribute(files, log.collectives, log.addresses, log.clock_offset_ns)
    check_sums(result)
    assert result.unattributed_bytes == result.unlogged_bytes == result.assumed_bytes == 0
    ranks = len(log.addresses)
    rows = {
        (row.group, row.kind, row.tag, row.data_bytes): row
        for row in result.by_collective()
        if row.collective is not None
    }
    # Every logged collective with traffic is found once, in its own group. A group of one
    # rank ("even" of two) sends nothing.
    logged = {id(c) for c in result.collectives if len(c.ranks) > 1}
    assert {id(row.collective) for row in rows.values()} == logged
    for row in rows.values():
        collective = row.collective
        assert collective is not None
        n = len(collective.ranks)
        # A rank sends 2 (n-1)/n of an all-reduce, (n-1)/n of an all-gather or all-to-all.
        factor = {
            "barrier": 0,
            "all_reduce": 2 * (n - 1),
            "reduce_scatter": 2 * (n - 1),
            "all_gather": n - 1,
            "all_to_all": n - 1,
            "broadcast": n - 1,
        }.get(row.kind)
        if factor is not None:
            assert row.data_bytes == factor * collective.size_bytes
        if row.kind == "send_recv":
            assert row.data_bytes == collective.size_bytes
        if row.kind == "barrier":
            assert row.messages == n * (n - 1).bit_length()
        assert row.preamble_bytes == 3 * PREAMBLE_BYTES * row.messages
    sends = [row for row in rows.values() if row.kind == "send_recv"]
    assert len(sends) == 3
    mesh = ranks * (ranks - 1) // 2
    groups = Counter(c.member.group for c in result.connections)
    assert groups["default"] == groups["copy.0"] == mesh


def test_sends_of_one_tag_are_told_apart(tmp_path: Path) -> None:
    """Two ranks send to each other under the user's tag 0, as pipeline stages do: neither the
    slot nor the size differs, only who sends and when."""
    slot = Slot(Prefix.USER, 0, 0)
    order = [(0, "a"), (1, "b"), (0, "c"), (1, "d"), (1, "e")]
    transfers = [Transfer(side, slot, 3_000) for side, _ in order]
    wire = Wire()
    wire.carry(converse(transfers, seed=6, at_once=1), mss=1448, seed=6, losses=False)
    # Side 0 connected and is rank 1. Every operation was posted at once; the log has them in
    # the order of posting.
    begin = wire.packets[0][0]
    logged = [
        LoggedCollective(
            name, "send_recv", "default", None, 3_000, 0, "", (1 - side, side), peer=1,
            intervals_ns={0: (begin + n, wire.time_ns), 1: (begin + n, wire.time_ns)},
        )
        for n, (side, name) in enumerate(order)
    ]  # fmt: skip
    packets = [read_pcap(wire.write_pcap(tmp_path / "a.pcap", 65_535))]
    result = attribute(packets, logged, {0: "10.0.0.1", 1: "10.0.0.2"}, clock_offset_ns=0)
    check_sums(result)
    rows = [row for row in result.by_collective() if row.kind == "send_recv"]
    assert sorted(row.collective.id for row in rows if row.collective) == list("abcde")
    assert {row.data_bytes for row in rows} == {3_000}
    assert result.unlogged_bytes == 0
    senders = {}
    ledger = result.ledger
    for index, collective in enumerate(result.collectives):
        sent = (ledger.collective == index) & (ledger.column("data_bytes") > 0)
        senders[collective.id] = set(ledger.direction[sent].tolist())
    assert senders == {name: {side} for side, name in order}


def test_steps_number_the_messages_of_a_ring(three_ranks: Path) -> None:
    """All-reduce of 3 ranks in 6 segments: 2 (6 - 6/3) messages, one way only."""
    log = read_log(three_ranks)
    files = [read_pcap(path) for path in sorted(three_ranks.glob("*.pcap"))]
    result = attribute(files, log.collectives, log.addresses, log.clock_offset_ns)
    ledger = result.ledger
    wanted = next(i for i, c in enumerate(result.collectives) if (c.group, c.tag) == ("default", 1))
    for connection in range(len(result.connections)):
        for direction in (0, 1):
            rows = (
                (ledger.collective == wanted)
                & (ledger.connection == connection)
                & (ledger.direction == direction)
                & (ledger.purpose == 0)
                & ledger.primary
                & (ledger.column("data_bytes") > 0)
            )
            assert sorted(ledger.step[rows].tolist()) in ([], list(range(8)))


@settings(max_examples=150, deadline=None)
@given(
    cuts=st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 255)), max_size=12),
    size=st.integers(0, 100_000),
    seed=st.integers(0, 20),
)
def test_damaged_captures_raise_only_our_errors(
    cuts: list[tuple[int, int]], size: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    transfers = [Transfer(i % 2, Slot(Prefix.ALLREDUCE, i // 3, 0), 3_000) for i in range(12)]
    wire = Wire()
    wire.carry(converse(transfers, seed), mss=1448, seed=seed, losses=True)
    path = wire.write_pcap(tmp_path_factory.mktemp("damaged") / "a.pcap", 160)
    content = bytearray(path.read_bytes())
    for at, value in cuts:
        content[at % len(content)] = value
    path.write_bytes(content[: max(size, 24)] if size < len(content) else content)
    try:
        check_sums(attribute([read_pcap(path)]))
    except (CaptureFormatError, AttributionError) as error:
        assert str(path) in str(error)


@settings(max_examples=60, deadline=None)
@given(payloads=st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=300)), max_size=10))
def test_streams_of_garbage_are_no_gloo(
    payloads: list[tuple[int, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    wire = Wire()
    wire.packet(0, 0x02, -1)
    wire.packet(1, 0x12, -1)
    # The hello is right, what follows is not: the connection has to be looked at.
    wire.packet(0, 0x18, 0, struct.pack("<Q", 1))
    for side, payload in payloads:
        wire.packet(side, 0x18, wire.sent[side], payload)
    path = wire.write_pcap(tmp_path_factory.mktemp("garbage") / "a.pcap", 65_535)
    check_sums(attribute([read_pcap(path)]))

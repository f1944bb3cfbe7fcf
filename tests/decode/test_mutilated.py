"""Captures that are cut, mixed up or made up are decoded or refused, in bounded time and memory."""

from __future__ import annotations

import gzip
import random
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.decode.attribution import AttributionError, attribute
from analysis.decode.found_collectives import OnWire, on_wire
from analysis.decode.gloo.stream import is_gloo, walk
from analysis.decode.hlo.module import read_modules
from analysis.decode.mpi.messages import mpi_connections
from analysis.decode.tcp.assembly import connections
from analysis.decode.tcp.pcap import CaptureFormatError, Packets, read_pcap
from tests.decode.synthetic_gloo import ACK, PSH, SYN, Wire, write_pcap

_DATA = Path(__file__).parent / "data" / "jax-four-ranks"
_RECORD_BYTES = 16
_FILE_BYTES = 24
_PACKETS = 400
"""The packets of each file: as many as a fuzzer can mutilate a hundred times."""
_MOST_MEMORY_BYTES = 64 << 20


@pytest.fixture(scope="module")
def files() -> list[list[tuple[int, bytes]]]:
    """Packets of each host: (time, frame)."""
    found = []
    for path in sorted(_DATA.glob("*.gz")):
        data = gzip.decompress(path.read_bytes())
        packets: list[tuple[int, bytes]] = []
        at = _FILE_BYTES
        while at < len(data) and len(packets) < _PACKETS:
            seconds, fraction, kept, _ = (
                int.from_bytes(data[at + 4 * n : at + 4 * n + 4], "little") for n in range(4)
            )
            frame = data[at + _RECORD_BYTES : at + _RECORD_BYTES + kept]
            packets.append((seconds * 10**9 + fraction, frame))
            at += _RECORD_BYTES + kept
        found.append(packets)
    return found


def _mutilated(packets: list[tuple[int, bytes]], rng: random.Random) -> list[tuple[int, bytes]]:
    """Packets lost, repeated, out of order, cut short, and with bytes changed."""
    kept = [one for one in packets if rng.random() > 0.05]
    for _ in range(rng.randrange(6)):
        if len(kept) < 2:
            break
        place = rng.randrange(len(kept) - 1)
        match rng.randrange(4):
            case 0:
                kept.insert(place, kept[rng.randrange(len(kept))])
            case 1:
                kept[place], kept[place + 1] = kept[place + 1], kept[place]
            case 2:
                time_ns, frame = kept[place]
                kept[place] = time_ns, frame[: rng.randrange(14, len(frame) + 1)]
            case _:
                time_ns, frame = kept[place]
                changed = bytearray(frame)
                for _ in range(rng.randrange(1, 9)):
                    changed[rng.randrange(len(changed))] = rng.randrange(256)
                kept[place] = time_ns, bytes(changed)
    return kept


def _decoded(paths: list[Path]) -> OnWire:
    files: list[Packets] = [read_pcap(path) for path in paths]
    first = (10 << 24) + 2
    captured = {rank: frozenset({rank}) for rank in range(len(files))}
    shown = on_wire(files, {first + rank: rank for rank in captured}, captured)
    try:
        attribute(files, (), {rank: f"10.0.0.{2 + rank}" for rank in captured})
    except AttributionError as error:
        assert "defect" not in str(error)
    list(mpi_connections(files, captured))
    return shown


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 1 << 32))
def test_mutilated_captures_are_decoded(
    files: list[list[tuple[int, bytes]]], tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    paths = [
        write_pcap(tmp_path / f"h{rank}-eth0.pcap", _mutilated(packets, rng), 65_535)
        for rank, packets in enumerate(files)
    ]
    tracemalloc.start()
    shown = _decoded(paths)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < _MOST_MEMORY_BYTES
    for each in shown.collectives:
        assert all(begun <= ended for begun, ended in each.intervals_ns.values())
        assert set(each.intervals_ns) <= set(each.ranks)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_a_file_with_other_bytes_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    whole = gzip.decompress((_DATA / "h1-eth0.pcap.gz").read_bytes())[:20_000]
    changed = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=12)
    ):
        if place < len(changed):
            changed[place] = value
    path = tmp_path / "h0-eth0.pcap"
    path.write_bytes(changed)
    try:
        files = [read_pcap(path)]
    except CaptureFormatError:
        return
    for connection in connections(files):
        if is_gloo(connection):
            for stream in (walk(connection.forward, True), walk(connection.backward, False)):
                ends = [part.position for part in stream.parts] + [stream.direction.length_bytes]
                assert ends == sorted(ends)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 40))
def test_payload_of_any_bytes_is_walked(payload: bytes, zeros: int) -> None:
    wire = Wire()
    wire.packet(0, SYN, -1)
    wire.packet(1, SYN | ACK, -1)
    wire.packet(0, ACK | PSH, 0, (1).to_bytes(8, "little") + bytes(zeros) + payload)
    with tempfile.TemporaryDirectory() as folder:
        path = wire.write_pcap(Path(folder) / "h0-eth0.pcap", 65_535)
        for connection in connections([read_pcap(path)]):
            if is_gloo(connection):
                walk(connection.forward, True)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.sampled_from([
    "ENTRY %main (a: f32[]) -> f32[] {", "%b (a: f32[]) -> f32[] {", "}",
    '  %x = (f32[2]{0}, f32[2]{0}) all-reduce(%a), replica_groups={{0,1},{2}}, op_name="p"',
    "  %w = (s32[]) while(%t), condition=%c, body=%b",
    "  %v = (s32[]) while(%t), condition=%c, body=%main",
    "  %g = f32[9,9]{1,0} all-gather(%a), replica_groups=[2,3]<=[7]",
    "  %k = f32[] call(%a), to_apply=%main",
    "  %m = f32[] all-reduce(%a), replica_groups=mesh['a'=2] {'b'}",
    "  %p = f32[3]{0} collective-permute(%a), source_target_pairs={{0,9}}",
]), max_size=12))  # fmt: skip
def test_a_dump_of_any_lines_is_read(tmp_path: Path, lines: list[str]) -> None:
    """Also one whose computations call themselves, or whose groups are none."""
    (tmp_path / "module_0001.a.cpu_after_optimizations.txt").write_text("\n".join(lines))
    read_modules(tmp_path)

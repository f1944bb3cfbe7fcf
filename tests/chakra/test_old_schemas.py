"""Traces of Chakra's older schemas are read as those of the present one.

The files are written here field by field, by each version's et_def.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.check import import_trace
from analysis.chakra.codec import encode
from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import CollectiveNode, ComputeNode, SendNode
from analysis.chakra.schema import NodeType
from analysis.chakra.sources.read import read_workload
from analysis.chakra.trace import Attribute, Trace, TraceNode

Value = int | float | str | bytes | bool
_TAGS = {
    "0.0.2": {float: (0, 4), int: (1, 5), str: (2, 6)},
    "0.0.3": {bool: (0, 4), float: (1, 5), int: (2, 6), str: (3, 7)},
    "0.0.3 with metadata": {bool: (0, 4), float: (1, 5), int: (3, 7), str: (4, 8)},
}
_FIRST_TYPES = {"COMP": 3, "COMM_SEND": 4, "COMM_COLL": 6}


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _field(number: int, value: Value) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(int(value))
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _attribute(version: str, name: str, value: Value) -> bytes:
    kind, number = _TAGS[version][type(value)]
    return _field(1, name) + _field(2, kind) + _field(number, value)


def _file(path: Path, records: Iterable[bytes]) -> Path:
    path.write_bytes(b"".join(_varint(len(record)) + record for record in records))
    return path


def _node(version: str, id: int, kind: str, parents: Iterable[int], **about: Value) -> bytes:
    name = f"n{id}"
    if version == "0.0.1":
        numbers = {"runtime": 7, "comm_type": 13, "comm_size": 18, "comm_dst": 17, "comm_tag": 19}
        record = _field(1, id) + _field(2, name) + _field(3, _FIRST_TYPES[kind])
        record += b"".join(_field(4, parent) for parent in parents)
        return record + b"".join(_field(numbers[n], v) for n, v in sorted(about.items()))
    number = _FIRST_TYPES[kind] if version == "0.0.2" else int(NodeType[kind])
    record = _field(1, id) + _field(2, name) + _field(3, number)
    record += b"".join(_field(4, parent) for parent in parents)
    return record + b"".join(_field(11, _attribute(version, n, v)) for n, v in about.items())


def _write(folder: Path, version: str) -> Path:
    """Two ranks: compute for 5 us, all-reduce 4 KiB, all-to-all, and rank 0 sends to rank 1."""
    first = 1 if version == "0.0.1" else 0
    for rank in range(2):
        records = [
            _node(version, 1, "COMP", (), runtime=5),
            _node(version, 2, "COMM_COLL", (1,), comm_type=first, comm_size=4096),
            _node(version, 3, "COMM_COLL", (2,), comm_type=first + 1, comm_size=64),
        ]
        if rank == 0:
            records.append(
                _node(version, 4, "COMM_SEND", (3,), comm_dst=1, comm_size=8, comm_tag=0)
            )
        if version == "0.0.3 with metadata":
            records.insert(0, _field(1, _attribute(version, "schema", "1.0.1")))
        _file(folder / f"t.{rank}.et", records)
    return folder / "t"


@pytest.mark.parametrize("version", ["0.0.1", *_TAGS])
def test_every_version_says_the_same(tmp_path: Path, version: str) -> None:
    prefix = _write(tmp_path, version)
    (tmp_path / "groups.json").write_text('{"1": [0, 1]}')
    read = read_workload(prefix, groups=tmp_path / "groups.json")
    compute, reduce, exchange, send = read.graphs[0]
    assert isinstance(compute, ComputeNode) and compute.duration_ns == 5000
    assert isinstance(reduce, CollectiveNode) and isinstance(exchange, CollectiveNode)
    assert [(n.call.kind, n.call.size_bytes) for n in (reduce, exchange)] == [
        ("all_reduce", 4096),
        ("all_to_all", 64),
    ]
    assert isinstance(send, SendNode) and (send.peer, send.size_bytes) == (1, 8)
    assert [node.after for node in read.graphs[0]] == [(), (1,), (2,), (3,)]
    assert f"is of Chakra's schema {version}" in read.notes[0]


def test_the_first_files_of_the_present_schema_have_no_version(tmp_path: Path) -> None:
    """Their attributes stand where the version is now, also those that are no text."""
    pid = _field(1, "pid") + _field(9, 300)
    trace = Trace((TraceNode(1, "c", NodeType.COMP, duration_micros=7),))
    whole = encode(trace)
    node = whole[1 + whole[0] :]
    path = tmp_path / "x.et"
    record = _field(1, pid)
    path.write_bytes(_varint(len(record)) + record + node)
    found, notes = import_trace(path)
    assert found.attributes == (Attribute("pid", "int64_val", 300),)
    assert found.nodes == trace.nodes and notes == ()


def test_an_attribute_with_an_empty_value_is_told(tmp_path: Path) -> None:
    """A number may be packed, and then there may be none."""
    path = Path(f"{_write(tmp_path, '0.0.2')}.0.et")
    node = _node("0.0.2", 9, "COMP", ()) + _field(11, _field(1, "size") + _field(5, b""))
    _file(path, [node])
    with pytest.raises(ChakraError, match="attribute 'size' has no value, expected one"):
        import_trace(path)


@given(st.sampled_from(["0.0.1", *_TAGS]), st.data())
def test_a_broken_old_file_is_told(
    tmp_path_factory: pytest.TempPathFactory, version: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("old")
    path = Path(f"{_write(folder, version)}.0.et")
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(whole))
    try:
        import_trace(path)
    except ChakraError as error:
        assert str(path) in str(error)

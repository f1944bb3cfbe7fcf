"""Chakra traces: what is written is read back; what is broken is told with file and offset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.check import check_trace, import_trace, ranks_of
from analysis.chakra.codec import decode, encode, read_bytes, write_trace
from analysis.chakra.errors import ChakraError
from analysis.chakra.schema import ATTRIBUTE_KINDS, CollectiveType, NodeType
from analysis.chakra.sources.read import read_workload
from analysis.chakra.trace import Attribute, TensorInfo, Trace, TraceNode

_SCALARS = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False, width=32),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "bool": st.booleans(),
    "string": st.text(),
    "bytes": st.binary(),
}
for _name in ("sint32", "sfixed32"):
    _SCALARS[_name] = _SCALARS["int32"]
for _name in ("sint64", "sfixed64"):
    _SCALARS[_name] = _SCALARS["int64"]
_SCALARS["fixed32"], _SCALARS["fixed64"] = _SCALARS["uint32"], _SCALARS["uint64"]


@st.composite
def attributes(draw: st.DrawFn) -> Attribute:
    kind = draw(st.none() | st.sampled_from(ATTRIBUTE_KINDS))
    value: Any = None
    if kind is not None:
        name, _, form = kind.partition("_")
        value = draw(
            _SCALARS[name] if form == "val" else st.lists(_SCALARS[name], max_size=4).map(tuple)
        )
    return Attribute(draw(st.text()), kind, value, draw(st.text()))


_ids = st.integers(0, 2**64 - 1)
_infos = st.none() | st.builds(TensorInfo, st.text(), st.text(), st.text())
_nodes = st.builds(
    TraceNode,
    id=_ids,
    name=st.text(),
    type=st.sampled_from(NodeType),
    ctrl_deps=st.lists(_ids, max_size=3).map(tuple),
    data_deps=st.lists(_ids, max_size=3).map(tuple),
    start_micros=_ids,
    duration_micros=_ids,
    inputs=_infos,
    outputs=_infos,
    attributes=st.lists(attributes(), max_size=4).map(tuple),
)
_traces = st.builds(
    Trace,
    st.lists(_nodes, max_size=5).map(tuple),
    st.text(),
    st.lists(attributes(), max_size=2).map(tuple),
)


@given(_traces)
def test_decode_is_the_inverse_of_encode(trace: Trace) -> None:
    assert decode(encode(trace)) == trace


@given(_traces, st.data())
def test_a_truncated_file_is_told_or_ends_at_a_record(trace: Trace, data: st.DataObject) -> None:
    whole = encode(trace)
    cut = data.draw(st.integers(0, len(whole) - 1))
    try:
        found = decode(whole[:cut], "cut.et")
    except ChakraError as error:
        assert str(error).startswith("cut.et: byte ")
        assert error.offset is not None
        assert 0 <= error.offset <= cut
    else:
        assert found.nodes == trace.nodes[: len(found.nodes)]
        assert encode(found) == whole[:cut]


@given(st.binary(max_size=200))
def test_garbage_is_told_and_nothing_else_happens(data: bytes) -> None:
    try:
        decode(data, "garbage.et")
    except ChakraError as error:
        assert "garbage.et" in str(error)


@given(_traces, st.data())
def test_a_flipped_byte_is_told_or_read(trace: Trace, data: st.DataObject) -> None:
    whole = bytearray(encode(trace))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        check_trace(decode(bytes(whole), "flipped.et"), "flipped.et")
    except ChakraError as error:
        assert "flipped.et" in str(error)


@pytest.mark.parametrize(
    ("data", "offset", "told"),
    [
        (b"", 0, "is empty"),
        (b"\x00\x80", 1, "ends inside a record's length"),
        (b"\xff\xff\xff\xff\xff\x01", 0, "not a 32-bit varint"),
        (b"\x00\x05ab", 1, "needs 5 bytes, but only 2 are left"),
        (b"\x02\xff\xff", 0, "not a GlobalMetadata message"),
        (b"\x00\x02\x08\xff", 1, "not a Node message"),
    ],
)
def test_what_is_wrong_is_told_with_its_offset(data: bytes, offset: int, told: str) -> None:
    with pytest.raises(ChakraError) as caught:
        decode(data, "bad.et")
    assert caught.value.offset == offset
    assert told in caught.value.what


def test_the_bytes_are_those_of_the_format() -> None:
    """Against the wire format by hand: field 1 and 3 of Node, field 27 of an attribute."""
    node = TraceNode(5, type=NodeType.COMP, attributes=(Attribute("c", "bool_val", True),))
    assert encode(Trace((node,), "")) == bytes.fromhex("00 0c 0805 1804 5206 0a0163 d80101")


@pytest.mark.parametrize(
    "attribute",
    [
        Attribute("a", "int32_val", 2**31),
        Attribute("a", "uint64_val", -1),
        Attribute("a", "int64_val", "many"),
        Attribute("a", "int64_list", (1, "two")),
        Attribute("a", "complex_val", 1),
    ],
)
def test_values_that_do_not_fit_are_refused(attribute: Attribute) -> None:
    with pytest.raises(ValueError, match="attribute a"):
        encode(Trace((TraceNode(1, attributes=(attribute,)),)))


def _collective(node_id: int, **values: int) -> TraceNode:
    attributes = tuple(Attribute(name, "int64_val", value) for name, value in values.items())
    return TraceNode(node_id, type=NodeType.COMM_COLL, attributes=attributes)


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ((), "holds no nodes"),
        ((TraceNode(1, type=4), TraceNode(1, type=4)), "node id 1 is used twice"),
        ((TraceNode(1, type=4, data_deps=(2,)),), "node 1 depends on node 2, which is not there"),
        ((TraceNode(1, type=4, ctrl_deps=(1,)),), "cycle through node 1"),
        (
            (
                TraceNode(1, type=4),
                TraceNode(2, type=4, data_deps=(3,)),
                TraceNode(3, type=4, data_deps=(2,)),
            ),
            "cycle through node 2",
        ),
        ((TraceNode(1, type=12),), "type 12, allowed 0 to 7"),
        ((_collective(1, comm_type=0),), "lacks attribute comm_size"),
        ((_collective(1, comm_type=99, comm_size=1),), "comm_type 99, allowed 0 to 9"),
        ((_collective(1, comm_type=0, comm_size=-4),), "comm_size is -4, below 0"),
        (
            (TraceNode(1, type=7, attributes=(Attribute("comm_type", "string_val", "sum"),)),),
            "comm_type of node 1 is 'sum', not an integer",
        ),
    ],
)
def test_a_graph_that_cannot_run_is_told(nodes: tuple[TraceNode, ...], told: str) -> None:
    with pytest.raises(ChakraError, match=told):
        check_trace(Trace(nodes), "graph.et")


def test_an_imported_graphs_fault_has_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "w.et"
    good, bad = TraceNode(1, type=4), TraceNode(2, type=4, data_deps=(9,))
    write_trace(path, Trace((good, bad)))
    with pytest.raises(ChakraError, match="node 2 depends on node 9") as caught:
        import_trace(path)
    assert caught.value.offset == len(encode(Trace((good,))))


def test_a_set_of_traces_is_read_by_rank(tmp_path: Path) -> None:
    for rank in (0, 1, 2, 10):
        write_trace(tmp_path / f"w.{rank}.et", Trace((TraceNode(rank, type=4),)))
    with pytest.raises(ChakraError, match="no file for rank 3 of 0 to 10"):
        ranks_of(tmp_path / "w", [".et"])
    (tmp_path / "w.10.et").unlink()
    assert list(ranks_of(tmp_path / "w", [".et"])) == [0, 1, 2]
    assert [graph[0].id for graph in read_workload(tmp_path / "w").graphs] == [0, 1, 2]
    with pytest.raises(ChakraError, match=r"no file other\.RANK\.et"):
        read_workload(tmp_path / "other")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ChakraError, match=r"absent\.et: cannot be read: No such file"):
        read_bytes(tmp_path / "absent.et")
    with pytest.raises(ChakraError):
        import_trace(tmp_path)


def test_the_collective_of_a_node_is_typed() -> None:
    assert _collective(1, comm_type=6).collective is CollectiveType.ALL_TO_ALL
    assert TraceNode(1, type=NodeType.COMP).collective is None

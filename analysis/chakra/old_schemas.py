"""Chakra's schemas before 0.0.4, read as the one that is written now.

| version | differs |
|---|---|
| 0.0.1 | a node has fields of its own for what attributes say later; no metadata |
| 0.0.2 | attributes of six types; node types without METADATA; no metadata |
| 0.0.3 | METADATA, attributes of eight types; later ten, and metadata without a version |
| 0.0.4 | as now; the first files have metadata without a version |

Collectives have other numbers before 0.0.4, durations are an attribute `runtime` (microseconds, as
Chakra's feeder of the time took them), or the field `simulated_run_time`. Source: mlcommons/chakra,
the history of et_def.proto (eg_def.proto) and of its feeder.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.chakra.schema import CollectiveType, NodeType
from analysis.chakra.trace import Attribute, TensorInfo, Trace, TraceNode

Field = tuple[int, int, int | bytes]
"""Number, wire type and value of a field."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LOOKED_AT = 200
"""Records that tell a version apart, at most."""
_TYPES_BEFORE_METADATA = {
    0: NodeType.INVALID,
    1: NodeType.MEM_LOAD,
    2: NodeType.MEM_STORE,
    3: NodeType.COMP,
    4: NodeType.COMM_SEND,
    5: NodeType.COMM_RECV,
    6: NodeType.COMM_COLL,
}
_COLLECTIVES_BEFORE = {
    0: CollectiveType.ALL_REDUCE,
    1: CollectiveType.ALL_TO_ALL,
    2: CollectiveType.ALL_GATHER,
    3: CollectiveType.REDUCE_SCATTER,
    4: CollectiveType.BROADCAST,
}
_OWN_FIELDS = {6: "tensor_size", 12: "num_ops", 16: "comm_src", 17: "comm_dst", 18: "comm_size",
               19: "comm_tag", 20: "comm_priority"}  # fmt: skip
_ATTRIBUTES: Mapping[str, Mapping[int, str]] = {
    "0.0.2": {4: "float_val", 5: "int64_val", 6: "string_val", 7: "float_list", 8: "int64_list",
              9: "string_list"},
    "0.0.3": {4: "bool_val", 5: "float_val", 6: "int64_val", 7: "string_val", 8: "bool_list",
              9: "float_list", 10: "int64_list", 11: "string_list"},
    "0.0.3 with metadata": {4: "bool_val", 5: "float_val", 6: "uint64_val", 7: "int64_val",
                            8: "string_val", 9: "bool_list", 10: "float_list", 11: "uint64_list",
                            12: "int64_list", 13: "string_list"},
}  # fmt: skip
"""By version: the field of an attribute that holds its value -> the kind that it is now."""
_WIRE_OF = {"bool": _VARINT, "float": _FIXED32, "int64": _VARINT, "uint64": _VARINT,
            "string": _BYTES}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Old:
    version: str
    metadata: bool


def old_trace(records: Sequence[bytes]) -> Trace | None:
    """A trace of an older schema, by its records; None where it is of the present one. Raises
    ValueError for a record that no version has."""
    old = _version(records)
    if old is None:
        return None
    nodes = [list(_fields(record)) for record in records[old.metadata :]]
    attributes: tuple[Attribute, ...] = ()
    if old.metadata:
        found = [value for number, _, value in _fields(records[0]) if number == 1]
        attributes = tuple(_attribute(value, old.version) for value in found)
    if old.version == "0.0.1":
        made = tuple(_first_node(fields) for fields in nodes)
    else:
        made = tuple(_node(fields, old.version) for fields in nodes)
    return Trace(made, version=old.version, attributes=attributes)


def versionless(record: bytes) -> bytes | None:
    """The metadata of a first file of 0.0.4, whose attributes have the place of the version, as the
    present one; None for any other."""
    try:
        fields = list(_fields(record))
        texts = [value for number, wire, value in fields if (number, wire) == (1, _BYTES)]
        if not texts or len(texts) < len(fields):
            return None
        about = [list(_fields(value)) for value in texts if isinstance(value, bytes)]
    except ValueError:
        return None
    if any(not each or each[0][:2] != (1, _BYTES) for each in about):
        return None
    return b"".join(b"\x12" + _length(value) + value for value in texts if isinstance(value, bytes))


def _length(value: bytes) -> bytes:
    left, found = len(value), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*found, left))


def _version(records: Sequence[bytes]) -> _Old | None:
    """The old version of a file, told by what its records look like."""
    try:
        first = list(_fields(records[0]))
    except ValueError:
        return None
    if not first:
        return None
    number, wire, value = first[0]
    if (number, wire) == (1, _VARINT):
        return _Old(_attribute_version(records) or "0.0.1", False)
    if (number, wire) != (1, _BYTES) or not isinstance(value, bytes):
        return None
    if len(first) > 1 and all(field[0] == 2 for field in first[1:]):
        return None
    if re.fullmatch(rb"[0-9A-Za-z._+-]*", value):
        return None
    try:
        about = list(_fields(value))
    except ValueError:
        return None
    # An attribute's second field is its type in old schemas, and a text in the present one.
    if any((number, wire) == (2, _VARINT) for number, wire, _ in about):
        return _Old("0.0.3 with metadata", True)
    return None


def _attribute_version(records: Sequence[bytes]) -> str | None:
    """The version of attributes of nodes without metadata before them."""
    seen: set[tuple[int, int]] = set()
    for record in records[:_LOOKED_AT]:
        for number, wire, value in _fields(record):
            if number == 11 and wire == _BYTES and isinstance(value, bytes):
                seen |= {(number, wire) for number, wire, _ in _fields(value) if number > 3}
    if not seen:
        return None
    fits = [
        version
        for version in ("0.0.2", "0.0.3")
        if all(_holds(_ATTRIBUTES[version].get(number, ""), wire) for number, wire in seen)
    ]
    return fits[-1] if fits else "0.0.3"


def _holds(kind: str, wire: int) -> bool:
    """Whether a field of this kind is written with this wire type; lists may be packed."""
    own = _WIRE_OF.get(kind.partition("_")[0])
    return own == wire or (kind.endswith("_list") and wire == _BYTES)


def _first_node(fields: Iterable[Field]) -> TraceNode:
    """A node of 0.0.1."""
    about: dict[int, Any] = {}
    parents: list[int] = []
    for number, wire, value in fields:
        if number == 4:
            parents += _numbers(wire, value)
        elif number != 14:  # involved_dim
            about[number] = value
    kind = _TYPES_BEFORE_METADATA.get(_whole(about, 3))
    if kind is None:
        raise ValueError(
            f"node {_whole(about, 1)}: node_type is {_whole(about, 3)}, allowed 0 to 6"
        )
    attributes = [
        Attribute(name, "uint64_val", _whole(about, number))
        for number, name in _OWN_FIELDS.items()
        if number in about
    ]
    if kind is NodeType.COMM_COLL and 13 in about:
        # 0 is no collective there, and the others count from 1.
        attributes.append(_collective(_whole(about, 1), _whole(about, 13) - 1))
    if about.get(15):
        attributes.append(Attribute("pg_name", "string_val", str(_whole(about, 15))))
    return TraceNode(
        _whole(about, 1),
        _text(about.get(2, b"")),
        kind,
        data_deps=tuple(parents),
        duration_micros=_whole(about, 7),
        attributes=tuple(attributes),
    )


def _node(fields: Iterable[Field], version: str) -> TraceNode:
    """A node of 0.0.2 or 0.0.3."""
    about: dict[int, Any] = {}
    parents: list[int] = []
    attributes: list[Attribute] = []
    for number, wire, value in fields:
        if number == 4:
            parents += _numbers(wire, value)
        elif number == 11:
            attributes.append(_attribute(value, version))
        else:
            about[number] = value
    id, type_ = _whole(about, 1), _whole(about, 3)
    if version == "0.0.2":
        if type_ not in _TYPES_BEFORE_METADATA:
            raise ValueError(f"node {id}: type is {type_}, allowed 0 to 6")
        type_ = _TYPES_BEFORE_METADATA[type_]
    kept = []
    micros = 0
    for attribute in attributes:
        if attribute.name == "runtime" and isinstance(attribute.value, int):
            micros = attribute.value
        elif attribute.name == "comm_type" and isinstance(attribute.value, int):
            kept.append(_collective(id, attribute.value))
        else:
            kept.append(attribute)
    return TraceNode(
        id,
        _text(about.get(2, b"")),
        type_,
        data_deps=tuple(parents),
        duration_micros=micros,
        inputs=_tensors(about, 5),
        outputs=_tensors(about, 8),
        attributes=tuple(kept),
    )


def _collective(id: int, value: int) -> Attribute:
    if value not in _COLLECTIVES_BEFORE:
        raise ValueError(
            f"node {id}: comm_type is {value}, allowed 0 to {len(_COLLECTIVES_BEFORE) - 1}"
        )
    return Attribute("comm_type", "int64_val", int(_COLLECTIVES_BEFORE[value]))


def _tensors(about: Mapping[int, Any], first: int) -> TensorInfo | None:
    if not any(number in about for number in range(first, first + 3)):
        return None
    return TensorInfo(*(_text(about.get(number, b"")) for number in range(first, first + 3)))


def _attribute(record: int | bytes, version: str) -> Attribute:
    if not isinstance(record, bytes):
        raise ValueError(f"an attribute is {record!r}, expected a message")
    name, doc, kind, values = "", "", None, []
    kinds = _ATTRIBUTES[version]
    for number, wire, value in _fields(record):
        if number == 1:
            name = _text(value)
        elif number == 3:
            doc = _text(value)
        elif number in kinds:
            kind = kinds[number]
            values += _values(kind, wire, value)
    if kind is None:
        return Attribute(name, None, None, doc)
    if not values and not kind.endswith("_list"):
        raise ValueError(f"attribute {name!r} has no value, expected one")
    return Attribute(name, kind, tuple(values) if kind.endswith("_list") else values[-1], doc)


def _values(kind: str, wire: int, value: int | bytes) -> list[Any]:
    what = kind.partition("_")[0]
    if what == "string":
        return [_text(value)]
    if what == "float":
        data = value if isinstance(value, bytes) else struct.pack("<I", value & 0xFFFFFFFF)
        if len(data) % 4:
            raise ValueError(f"a list of float numbers has {len(data)} bytes")
        return [number for (number,) in struct.iter_unpack("<f", data)]
    numbers = _numbers(wire, value)
    if what == "bool":
        return [bool(number) for number in numbers]
    if what == "int64":
        return [number - (1 << 64) if number >> 63 else number for number in numbers]
    return numbers


def _numbers(wire: int, value: int | bytes) -> list[int]:
    """Numbers, packed or not."""
    if isinstance(value, int):
        return [value]
    found, place = [], 0
    while place < len(value):
        number, place = _varint(value, place)
        found.append(number)
    return found


def _whole(about: Mapping[int, Any], number: int) -> int:
    value = about.get(number, 0)
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no number")
    return value


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _fields(record: bytes) -> Iterator[Field]:
    """The fields of a message. Raises ValueError."""
    place = 0
    while place < len(record):
        key, place = _varint(record, place)
        number, wire = key >> 3, key & 7
        if not number:
            raise ValueError("a field has the number 0")
        if wire == _VARINT:
            value: int | bytes
            value, place = _varint(record, place)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
            if place + size > len(record):
                raise ValueError("a record ends inside a number")
            value = int.from_bytes(record[place : place + size], "little")
            place += size
        elif wire == _BYTES:
            size, place = _varint(record, place)
            if size > len(record) - place:
                raise ValueError("a record ends inside a text")
            value = record[place : place + size]
            place += size
        else:
            raise ValueError(f"a field has wire type {wire}")
        yield number, wire, value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, place
        shift += 7
    raise ValueError("a record ends inside a number")

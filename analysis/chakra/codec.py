"""Trace <-> bytes: protobuf messages, each behind its length as a varint."""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from analysis.chakra.errors import ChakraError
from analysis.chakra.schema import AttributeMessage, MetadataMessage, NodeMessage
from analysis.chakra.trace import Attribute, TensorInfo, Trace, TraceNode

# Chakra's feeder keeps a record's length in 32 bits.
_LENGTH_BYTES_MAX = 5
_GZIP = b"\x1f\x8b"
_MOST_BYTES = 1 << 32


def encode(trace: Trace) -> bytes:
    """The bytes of a `.et` file.

    Raises ValueError when a value does not fit its field (a negative id, text that is not text).
    """
    metadata = MetadataMessage(version=trace.version)
    metadata.attr.extend(_attribute_message(attribute) for attribute in trace.attributes)
    parts: list[bytes] = []
    _append_record(parts, metadata)
    for node in trace.nodes:
        _append_record(parts, _node_message(node))
    return b"".join(parts)


def write_trace(path: Path | str, trace: Trace) -> None:
    """Write one rank's trace."""
    Path(path).write_bytes(encode(trace))


def decode(data: bytes, path: Path | str = "<bytes>") -> Trace:
    """The inverse of `encode`; `path` is only named in errors. Raises ChakraError."""
    return decode_records(read_records(data, path), path)


def read_records(data: bytes, path: Path | str = "<bytes>") -> tuple[tuple[int, bytes], ...]:
    """The records of a file, each with its offset; the first one is its metadata. Raises
    ChakraError."""
    if not data:
        raise ChakraError(path, 0, "is empty: a trace starts with its GlobalMetadata record")
    return tuple(_records(data, path))


def decode_records(records: Sequence[tuple[int, bytes]], path: Path | str) -> Trace:
    """The trace of a file's records. Raises ChakraError."""
    offset, record = records[0]
    metadata = _parse(MetadataMessage, record, path, offset, "GlobalMetadata")
    nodes: list[TraceNode] = []
    for offset, record in records[1:]:
        nodes.append(_node(_parse(NodeMessage, record, path, offset, "Node")))
    return Trace(tuple(nodes), metadata.version, tuple(_attribute(a) for a in metadata.attr))


def read_bytes(path: Path | str) -> bytes:
    """A file's bytes, unpacked where it is packed by gzip. Raises ChakraError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ChakraError(path, None, f"cannot be read: {error.strerror}") from None
    return unpacked(data, path)


def unpacked(data: bytes, path: Path | str) -> bytes:
    """The contents of a file's bytes, which may be packed by gzip. Raises ChakraError."""
    if not data.startswith(_GZIP):
        return data
    try:
        with gzip.open(BytesIO(data)) as packed:
            data = packed.read(_MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ChakraError(path, None, f"cannot be unpacked by gzip: {error}") from None
    if len(data) > _MOST_BYTES:
        raise ChakraError(path, None, f"unpacks to more than {_MOST_BYTES >> 30} GiB")
    return data


def _append_record(parts: list[bytes], message: Any) -> None:
    body = message.SerializeToString(deterministic=True)
    parts.append(_varint(len(body)))
    parts.append(body)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _records(data: bytes, path: Path | str) -> Iterator[tuple[int, bytes]]:
    """Each record with the offset of its length prefix."""
    position = number = 0
    empty = False
    while position < len(data):
        offset = position
        length = shift = 0
        while True:
            if position == len(data):
                raise ChakraError(path, offset, "the file ends inside a record's length")
            byte = data[position]
            position += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if position - offset == _LENGTH_BYTES_MAX:
                raise ChakraError(path, offset, "a record's length is not a 32-bit varint")
        if length > len(data) - position:
            raise ChakraError(
                path,
                offset,
                f"the record needs {length} bytes, but only {len(data) - position} are left",
            )
        # Two nodes without bytes are two nodes 0; a file of zeros is millions of them.
        if not length and empty:
            raise ChakraError(path, offset, "node id 0 is used twice")
        empty = not length and number > 0
        number += 1
        yield offset, data[position : position + length]
        position += length


def _parse(message_class: Any, record: bytes, path: Path | str, offset: int, name: str) -> Any:
    try:
        return message_class.FromString(record)
    except DecodeError as error:
        raise ChakraError(path, offset, f"the record is not a {name} message: {error}") from None


def _attribute_message(attribute: Attribute) -> Any:
    message = AttributeMessage(name=attribute.name, doc_string=attribute.doc_string)
    if attribute.kind is None:
        return message
    try:
        if attribute.kind.endswith("_list"):
            # An empty list must still select its branch of the oneof.
            values = getattr(message, attribute.kind)
            values.SetInParent()
            values.values.extend(attribute.value)
        else:
            setattr(message, attribute.kind, attribute.value)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"attribute {attribute.name}: {attribute.value!r} is not a {attribute.kind}: {error}"
        ) from None
    return message


def _attribute(message: Any) -> Attribute:
    kind = message.WhichOneof("value")
    if kind is None:
        value = None
    elif kind.endswith("_list"):
        value = tuple(getattr(message, kind).values)
    else:
        value = getattr(message, kind)
    return Attribute(message.name, kind, value, message.doc_string)


def _node_message(node: TraceNode) -> Any:
    try:
        message = NodeMessage(
            id=node.id,
            name=node.name,
            type=node.type,
            ctrl_deps=node.ctrl_deps,
            data_deps=node.data_deps,
            start_time_micros=node.start_micros,
            duration_micros=node.duration_micros,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"node {node.id}: {error}") from None
    for name, info in (("inputs", node.inputs), ("outputs", node.outputs)):
        if info is not None:
            target = getattr(message, name)
            target.SetInParent()
            target.values, target.shapes, target.types = info.values, info.shapes, info.types
    message.attr.extend(_attribute_message(attribute) for attribute in node.attributes)
    return message


def _tensor_info(message: Any, name: str) -> TensorInfo | None:
    if not message.HasField(name):
        return None
    info = getattr(message, name)
    return TensorInfo(info.values, info.shapes, info.types)


def _node(message: Any) -> TraceNode:
    return TraceNode(
        message.id,
        message.name,
        message.type,
        tuple(message.ctrl_deps),
        tuple(message.data_deps),
        message.start_time_micros,
        message.duration_micros,
        _tensor_info(message, "inputs"),
        _tensor_info(message, "outputs"),
        tuple(_attribute(attribute) for attribute in message.attr),
    )

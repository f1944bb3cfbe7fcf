"""The Chakra execution-trace schema (proto3 package ChakraProtoMsg), as protobuf classes.

The descriptors are built here field by field, so that no generated code is kept and the
numbers below are the single statement of the format. Source: mlcommons/chakra,
schema/protobuf/et_def.proto (schema version 0.0.4, the one ASTRA-sim 2.x reads).
"""

from enum import IntEnum
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from collectives.kinds import Kind

PACKAGE = "ChakraProtoMsg"
SCHEMA_VERSION = "0.0.4"


class NodeType(IntEnum):
    """The type of a node; the values are the wire's."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CollectiveType(IntEnum):
    """The `comm_type` attribute of a collective node; the values are the wire's."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


COLLECTIVE_KINDS: dict[str, CollectiveType] = {
    Kind.ALL_REDUCE: CollectiveType.ALL_REDUCE,
    Kind.REDUCE: CollectiveType.REDUCE,
    Kind.ALL_GATHER: CollectiveType.ALL_GATHER,
    Kind.GATHER: CollectiveType.GATHER,
    Kind.SCATTER: CollectiveType.SCATTER,
    Kind.BROADCAST: CollectiveType.BROADCAST,
    Kind.ALL_TO_ALL: CollectiveType.ALL_TO_ALL,
    Kind.REDUCE_SCATTER: CollectiveType.REDUCE_SCATTER,
    Kind.BARRIER: CollectiveType.BARRIER,
}
"""torch's names for the collectives."""

_Field = descriptor_pb2.FieldDescriptorProto

# An attribute's value is one of these, `<name>_val` with the number given and
# `<name>_list` (a message holding `repeated values = 1`) with the next number.
_SCALARS = (
    ("double", 3, _Field.TYPE_DOUBLE),
    ("float", 5, _Field.TYPE_FLOAT),
    ("int32", 7, _Field.TYPE_INT32),
    ("int64", 9, _Field.TYPE_INT64),
    ("uint32", 11, _Field.TYPE_UINT32),
    ("uint64", 13, _Field.TYPE_UINT64),
    ("sint32", 15, _Field.TYPE_SINT32),
    ("sint64", 17, _Field.TYPE_SINT64),
    ("fixed32", 19, _Field.TYPE_FIXED32),
    ("fixed64", 21, _Field.TYPE_FIXED64),
    ("sfixed32", 23, _Field.TYPE_SFIXED32),
    ("sfixed64", 25, _Field.TYPE_SFIXED64),
    ("bool", 27, _Field.TYPE_BOOL),
    ("string", 29, _Field.TYPE_STRING),
    ("bytes", 31, _Field.TYPE_BYTES),
)

ATTRIBUTE_KINDS = tuple(f"{name}_{form}" for name, _, _ in _SCALARS for form in ("val", "list"))


def _add_field(
    message: descriptor_pb2.DescriptorProto,
    name: str,
    number: int,
    kind: "_Field.Type.ValueType",
    *,
    repeated: bool = False,
    type_name: str | None = None,
    in_oneof: bool = False,
) -> None:
    field = message.field.add(name=name, number=number, type=kind)
    field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    if type_name is not None:
        field.type_name = f".{PACKAGE}.{type_name}"
    if in_oneof:
        field.oneof_index = 0


def _describe() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="groundwire/chakra_et.proto", package=PACKAGE, syntax="proto3"
    )
    for enum, prefix, suffix in ((NodeType, "", "_NODE"), (CollectiveType, "", "")):
        described = file.enum_type.add(
            name="NodeType" if enum is NodeType else "CollectiveCommType"
        )
        for member in enum:
            described.value.add(name=f"{prefix}{member.name}{suffix}", number=member.value)

    attribute = file.message_type.add(name="AttributeProto")
    _add_field(attribute, "name", 1, _Field.TYPE_STRING)
    _add_field(attribute, "doc_string", 2, _Field.TYPE_STRING)
    attribute.oneof_decl.add(name="value")
    for name, number, kind in _SCALARS:
        list_name = f"{name.capitalize()}List"
        _add_field(file.message_type.add(name=list_name), "values", 1, kind, repeated=True)
        _add_field(attribute, f"{name}_val", number, kind, in_oneof=True)
        _add_field(
            attribute,
            f"{name}_list",
            number + 1,
            _Field.TYPE_MESSAGE,
            type_name=list_name,
            in_oneof=True,
        )

    metadata = file.message_type.add(name="GlobalMetadata")
    _add_field(metadata, "version", 1, _Field.TYPE_STRING)
    _add_field(metadata, "attr", 2, _Field.TYPE_MESSAGE, repeated=True, type_name="AttributeProto")

    io_info = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), start=1):
        _add_field(io_info, name, number, _Field.TYPE_STRING)

    node = file.message_type.add(name="Node")
    _add_field(node, "id", 1, _Field.TYPE_UINT64)
    _add_field(node, "name", 2, _Field.TYPE_STRING)
    _add_field(node, "type", 3, _Field.TYPE_ENUM, type_name="NodeType")
    _add_field(node, "ctrl_deps", 4, _Field.TYPE_UINT64, repeated=True)
    _add_field(node, "data_deps", 5, _Field.TYPE_UINT64, repeated=True)
    _add_field(node, "start_time_micros", 6, _Field.TYPE_UINT64)
    _add_field(node, "duration_micros", 7, _Field.TYPE_UINT64)
    _add_field(node, "inputs", 8, _Field.TYPE_MESSAGE, type_name="IOInfo")
    _add_field(node, "outputs", 9, _Field.TYPE_MESSAGE, type_name="IOInfo")
    _add_field(node, "attr", 10, _Field.TYPE_MESSAGE, repeated=True, type_name="AttributeProto")
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_describe())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


NodeMessage = _message("Node")
MetadataMessage = _message("GlobalMetadata")
AttributeMessage = _message("AttributeProto")

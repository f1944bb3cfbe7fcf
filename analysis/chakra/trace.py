"""One rank's execution trace as plain, frozen data."""

from dataclasses import dataclass, field
from typing import Any

from analysis.chakra.schema import SCHEMA_VERSION, CollectiveType, NodeType

AttributeValue = float | int | bool | str | bytes | tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: `kind` is the schema's oneof field (`int64_val`, `bool_list`, ...).

    A `*_list` kind holds a tuple. `kind` None is an attribute without a value, which the
    format allows.
    """

    name: str
    kind: str | None
    value: AttributeValue | None
    doc_string: str = ""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A node's inputs or outputs, as the strings the format carries."""

    values: str = ""
    shapes: str = ""
    types: str = ""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node of the graph. Times are the format's: integer microseconds."""

    id: int
    name: str = ""
    type: int = NodeType.INVALID
    ctrl_deps: tuple[int, ...] = ()
    data_deps: tuple[int, ...] = ()
    start_micros: int = 0
    duration_micros: int = 0
    inputs: TensorInfo | None = None
    outputs: TensorInfo | None = None
    attributes: tuple[Attribute, ...] = ()

    def attribute(self, name: str) -> AttributeValue | None:
        """The first attribute of that name, as Chakra's own feeder picks it; None if absent."""
        for attribute in self.attributes:
            if attribute.name == name:
                return attribute.value
        return None

    def integer(self, name: str) -> int | None:
        """An attribute that must be an integer (bools count); None if absent.

        Raises ValueError when it is there but is something else.
        """
        value = self.attribute(name)
        if value is None:
            return None
        if not isinstance(value, int):
            raise ValueError(f"attribute {name} of node {self.id} is {value!r}, not an integer")
        return int(value)

    @property
    def collective(self) -> CollectiveType | None:
        """The collective a COMM_COLL node runs, None for other nodes."""
        value = self.integer("comm_type") if self.type == NodeType.COMM_COLL else None
        return None if value is None else CollectiveType(value)


@dataclass(frozen=True, slots=True)
class Trace:
    """One rank's trace: the global metadata and the nodes, in file order."""

    nodes: tuple[TraceNode, ...]
    version: str = SCHEMA_VERSION
    attributes: tuple[Attribute, ...] = field(default=())

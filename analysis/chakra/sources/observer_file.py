"""Files of torch.profiler.ExecutionTraceObserver, read and checked: operators with their tensors,
the process groups, and what NCCL was told.

The observer writes every operator with its caller, its tensors and their storages, but no times.
`record_param_comms` says what NCCL communicates. Its arguments (pytorch/pytorch,
torch/csrc/distributed/c10d/ParamCommsUtils.hpp): tensors, a number, the group, the root or peer,
the collective's name, and what is not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.chakra.codec import read_bytes
from analysis.chakra.errors import ChakraError
from analysis.chakra.sources.nccl_calls import NcclCall, communicates, is_message, peer_of
from topologies.spec.foreign_files import foreign_document

_PROCESS_GROUPS = "## process_group:init ##"
_RECORDED = "record_param_comms"


@dataclass(frozen=True, slots=True)
class Tensor:
    storage: int
    size_bytes: int
    elements: int
    element_bytes: int


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    mutated: bool


@dataclass(frozen=True, slots=True)
class Operator:
    """One node of the observer's file."""

    id: int  # grows in the order of starts
    name: str
    end: int  # its line in the file: operators are written when they end
    thread: int
    schema: str
    inputs: list[Any]
    outputs: list[Any]
    shapes: list[Any]
    function: int = 0  # the id of its record function, which a profile names, too

    def argument(self, name: str) -> Any:
        """An argument by its name in the operator's schema. Raises KeyError."""
        return dict(zip((p.name for p in self.parameters()), self.inputs, strict=False))[name]

    def parameters(self) -> list[Parameter]:
        """The parameters of `ns::op(Tensor(a!) self, int b=1) -> Tensor`."""
        match = re.match(r"[^(]*\((.*)\) ->", self.schema)
        if match is None:
            return []
        parts = re.sub(r"\[[^\]]*\]", "", match[1]).split(",")
        return [
            Parameter(part.split("=")[0].split()[-1], "!" in part)
            for part in parts
            if part.strip(" *")
        ]

    def mutated(self) -> Iterator[Tensor]:
        """The tensors that it writes to in place."""
        for parameter, value in zip(self.parameters(), self.inputs, strict=False):
            if parameter.mutated:
                yield from tensors_of(value)


class ObserverFile:
    """A file of the observer, read and checked."""

    def __init__(self, path: Path | str, document: Mapping[str, Any] | None = None) -> None:
        """The file at `path`, whose `document` may have been read. Raises ChakraError."""
        self.path = Path(path)
        document = read_document(path) if document is None else document
        if (other := foreign_document(document) or _other_schema(document)) is not None:
            raise ChakraError(path, None, f"is no execution trace: it is {other}")
        nodes = document.get("nodes")
        if not isinstance(nodes, list):
            raise ChakraError(path, None, f"nodes: found {type(nodes).__name__}, needs a list")
        try:
            operators = [_operator(node, end) for end, node in enumerate(nodes)]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ChakraError(
                path, None, f"a node lacks or mistypes a field: {type(error).__name__} {error}"
            ) from None
        self.operators = sorted(operators, key=lambda operator: operator.id)

    @cached_property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """The ranks of each process group, by its name, and in old files by its number. Raises
        ChakraError."""
        found: dict[str, tuple[int, ...]] = {}
        for operator in self.operators:
            if operator.name != _PROCESS_GROUPS:
                continue
            try:
                for group in json.loads(operator.inputs[0]):
                    # One of all ranks lists none.
                    ranks = tuple(map(int, group["ranks"])) or tuple(range(group["group_size"]))
                    found[str(group["pg_name"])] = ranks
                    if "backend_id" in group:
                        found[str(group["backend_id"])] = ranks
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise ChakraError(
                    self.path,
                    None,
                    f"node {operator.id} ({operator.name}) lists no process groups: "
                    f"{type(error).__name__} {error}",
                ) from None
        return found

    @property
    def world(self) -> tuple[int, ...]:
        """The ranks of the one process group.

        It does not matter in which of several with the same ranks a collective ran. Raises
        ChakraError when there is none, or several of unlike ranks: for Gloo the observer does not
        say which of them a collective ran in.
        """
        members = set(self.groups.values())
        if len(members) != 1:
            raise ChakraError(
                self.path,
                None,
                f"has {len(members)} process groups of unlike ranks, one is needed: the observer "
                "does not say which of them a Gloo collective used (of NCCL it does)",
            )
        return members.pop()

    @cached_property
    def calls(self) -> dict[int, NcclCall]:
        """NCCL's calls, by the id of the operator that recorded each. Raises ChakraError."""
        found = {}
        for operator in self.operators:
            if operator.name == _RECORDED:
                try:
                    call = self._recorded(operator)
                except (KeyError, IndexError, TypeError, ValueError) as error:
                    raise ChakraError(
                        self.path,
                        None,
                        f"node {operator.id} ({_RECORDED}) cannot be understood: {error}",
                    ) from None
                if call is not None:
                    found[operator.id] = call
        return found

    def calls_by_function(self) -> dict[int, NcclCall]:
        """The same, by the id of the record function. Raises ChakraError."""
        functions = {operator.id: operator.function for operator in self.operators}
        return {functions[id]: call for id, call in self.calls.items()}

    def _recorded(self, operator: Operator) -> NcclCall | None:
        values = operator.inputs
        at = next((i for i, v in enumerate(values) if isinstance(v, str) and communicates(v)), None)
        if at is None:
            return None
        if at < 2:
            raise ValueError("its collective's name has no process group before it")
        name, position, group = values[at], values[at - 1], values[at - 2]
        group = group[0] if isinstance(group, list) and group else group
        if str(group) not in self.groups:
            raise ValueError(f"process group {group!r} is not listed in {_PROCESS_GROUPS}")
        ranks = self.groups[str(group)]
        inputs = list(tensors_of(values[: at - 2]))
        outputs = list(tensors_of(operator.outputs))
        splits = [
            split for value in values[at + 1 : at + 3] if isinstance(value, list) for split in value
        ]
        return NcclCall(
            name,
            sum(tensor.elements for tensor in inputs),
            sum(tensor.elements for tensor in outputs),
            max((tensor.element_bytes for tensor in (*inputs, *outputs)), default=1),
            ranks,
            position if 0 <= position < len(ranks) else 0,
            peer_of(position, ranks) if is_message(name) else None,
            len(set(splits)) > 1,
        )


def read_document(path: Path | str) -> dict[str, Any]:
    """The JSON object of a file, which may be packed by gzip. Raises ChakraError."""
    try:
        document = json.loads(read_bytes(path))
    except json.JSONDecodeError as error:
        raise ChakraError(path, error.pos, f"is not JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ChakraError(path, error.start, "is not JSON: not UTF-8") from None
    except RecursionError:
        raise ChakraError(
            path, None, "is not JSON that can be read: it is nested too deep"
        ) from None
    if not isinstance(document, dict):
        raise ChakraError(path, None, "is no execution trace: it is no JSON object")
    return document


def _other_schema(document: Mapping[str, Any]) -> str | None:
    """The kind of a trace that is not the observer's, and what to do. Some have no schema entry;
    their nodes say whether they can be read."""
    if "workload_graph" in document:
        return "Chakra's JSON; give the .et file that it was made from"
    schema = document.get("schema")
    if schema is None or "chakra" in str(schema):
        return None
    return (
        f"of schema {schema}, which does not name chakra; record it again by a newer PyTorch, "
        "whose schema is 1.0.2-chakra.0.0.4 or higher"
    )


def _operator(node: dict[str, Any], end: int) -> Operator:
    attributes = {item["name"]: item["value"] for item in node["attrs"]}
    return Operator(
        id=int(node["id"]),
        name=str(node["name"]),
        end=end,
        thread=int(attributes.get("tid", 0)),
        schema=str(attributes.get("op_schema", "")),
        inputs=list(node["inputs"]["values"]),
        outputs=list(node["outputs"]["values"]),
        shapes=list(node["inputs"]["shapes"]),
        function=int(attributes.get("rf_id", 0)),
    )


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Every tensor in a value: [tensor, storage, offset, elements, bytes each, device]."""
    if not isinstance(value, list):
        return
    if (
        len(value) == 6
        and isinstance(value[5], str)
        and all(isinstance(item, int) for item in value[:5])
    ):
        yield Tensor(value[1], value[3] * value[4], value[3], value[4])
        return
    for item in value:
        yield from tensors_of(item)

"""PyTorch's own execution traces (ExecutionTraceObserver) as graphs.

The observer writes every operator with its caller, its tensors and their storages, but no times.
Operators that no other operator called become computation (with the products that they called
counted), c10d operators become communication; the order on each thread and the storages that they
read and write give the dependencies. Chakra's own converter knows NCCL's kernels only and would
leave a Gloo run without communication.

Of NCCL, the `record_param_comms` within a c10d operator says in which process group it is; of Gloo
nothing does. Its arguments (pytorch/pytorch, torch/csrc/distributed/c10d/ParamCommsUtils.hpp):
tensors, a number, the group, the root or the peer, the collective's name, and what is not read.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from analysis.chakra.codec import read_bytes
from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    Graph,
    GraphNode,
    ReceiveNode,
    SendNode,
)
from analysis.chakra.sources.nccl_calls import NcclCall, communicates, is_message, peer_of
from analysis.chakra.sources.recorded import Message
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from topologies.spec.foreign_files import foreign_document

_PROCESS_GROUPS = "## process_group:init ##"
_COMMUNICATION = "c10d::"
_RECORDED = "record_param_comms"
_BACKEND = "gloo:"  # what a c10d operator does inside the backend, on whatever thread

# c10d operator -> (torch's name of the collective, the argument whose bytes it is about,
# whether those are one rank's shard of the size that the call states).
_COLLECTIVES = {
    "allreduce_": (Kind.ALL_REDUCE, "tensors", False),
    "allreduce_coalesced_": (Kind.ALL_REDUCE, "tensors", False),
    "allgather_": (Kind.ALL_GATHER, "input_tensors", True),
    "_allgather_base_": (Kind.ALL_GATHER, "input_tensor", True),
    "allgather_into_tensor_coalesced_": (Kind.ALL_GATHER, "inputs", True),
    "reduce_scatter_": (Kind.REDUCE_SCATTER, "output_tensors", True),
    "_reduce_scatter_base_": (Kind.REDUCE_SCATTER, "output_tensor", True),
    "reduce_scatter_tensor_coalesced_": (Kind.REDUCE_SCATTER, "outputs", True),
    "alltoall_": (Kind.ALL_TO_ALL, "input_tensors", False),
    "alltoall_base_": (Kind.ALL_TO_ALL, "input", False),
    "broadcast_": (Kind.BROADCAST, "tensors", False),
    "reduce_": (Kind.REDUCE, "tensors", False),
    "gather_": (Kind.GATHER, "input_tensors", True),
    "scatter_": (Kind.SCATTER, "output_tensors", True),
    Kind.BARRIER: (Kind.BARRIER, None, False),
    "monitored_barrier_": (Kind.BARRIER, None, False),
}
# Allocations, and wrappers of c10d operators.
_NO_WORK = ("aten::empty", "aten::new_empty", "_c10d_functional::", "_c10d_functional_autograd::")
# Matrix products, with the position of their left factor.
_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1}
_CONVOLUTION = "aten::mkldnn_convolution"


@dataclass(frozen=True, slots=True)
class _Tensor:
    storage: int
    size_bytes: int
    elements: int
    element_bytes: int


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    mutated: bool


@dataclass(frozen=True, slots=True)
class _Operator:
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

    def parameters(self) -> list[_Parameter]:
        """The parameters of `ns::op(Tensor(a!) self, int b=1) -> Tensor`."""
        match = re.match(r"[^(]*\((.*)\) ->", self.schema)
        if match is None:
            return []
        parts = re.sub(r"\[[^\]]*\]", "", match[1]).split(",")
        return [
            _Parameter(part.split("=")[0].split()[-1], "!" in part)
            for part in parts
            if part.strip(" *")
        ]

    def mutated(self) -> Iterator[_Tensor]:
        """The tensors that it writes to in place."""
        for parameter, value in zip(self.parameters(), self.inputs, strict=False):
            if parameter.mutated:
                yield from _tensors(value)


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

        Of several with the same ranks it does not matter which one a collective ran in. Raises
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
        """What NCCL was told, by the id of the operator that recorded it. Raises ChakraError."""
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

    def _recorded(self, operator: _Operator) -> NcclCall | None:
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
        inputs = list(_tensors(values[: at - 2]))
        outputs = list(_tensors(operator.outputs))
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


def read_observer(
    path: Path | str,
    compute_ns: Callable[[int, int], int] = lambda flops, memory_bytes: 0,
    document: Mapping[str, Any] | None = None,
) -> tuple[Graph, tuple[str, ...]]:
    """One rank's graph from a file of torch.profiler.ExecutionTraceObserver, and notes on what is
    read otherwise than it stands there.

    `compute_ns(flops, bytes)` gives each operator's duration in nanoseconds (the file has none).
    Operations are counted for matrix products and convolutions, others count one per element of
    their results; bytes are those of all tensors read and written. Raises ChakraError for a file
    that is none, and for communication that cannot be told from it (Gloo's in several process
    groups, receives from anyone). `document` is what is in the file, where it has been read.
    """
    observed = ObserverFile(path, document)
    builder = _Builder(observed, compute_ns)
    # By thread: the last outermost operator; and the products within each of those.
    outermost: dict[int, _Operator] = {}
    products: defaultdict[int, int] = defaultdict(int)
    for operator in observed.operators:
        if not _computes(operator):
            continue
        # The file's own callers are not to be trusted: the end of asynchronous work, on another
        # thread, pops the observer's stack of this one. Starts and ends are recorded rightly.
        around = outermost.get(operator.thread)
        if around is None or around.end < operator.end:
            around = outermost[operator.thread] = operator
        products[around.id] += _product_flops(operator)
    for operator in observed.operators:
        if operator.name.startswith(_COMMUNICATION):
            builder.communicate(operator)
        elif operator.id in products:
            builder.compute(operator, products[operator.id])
    if not builder.nodes:
        raise ChakraError(path, None, "holds no operators")
    return tuple(builder.nodes), tuple(builder.notes())


class _Builder:
    """Makes nodes in program order and keeps who last touched each storage."""

    def __init__(
        self,
        observed: ObserverFile,
        compute_ns: Callable[[int, int], int],
    ) -> None:
        self._path = observed.path
        self._observed = observed
        self._compute_ns = compute_ns
        self.nodes: list[GraphNode] = []
        self._calls = _within(observed)
        self._uneven = 0
        self._last_on_thread: dict[int, int] = {}
        self._writer: dict[int, int] = {}
        self._readers: defaultdict[int, list[int]] = defaultdict(list)

    def notes(self) -> Iterator[str]:
        """Notes on nodes that are read otherwise than they stand there."""
        if self._uneven:
            yield (
                f"{self._uneven} all-to-alls have unequal parts; they are read with equal ones of "
                "the same bytes in all"
            )

    def compute(self, operator: _Operator, product_flops: int) -> None:
        """An operator that computes; views and allocations do not."""
        read = {tensor.storage for tensor in _tensors(operator.inputs)}
        mutated = list(operator.mutated())
        results = [t for t in _tensors(operator.outputs) if mutated or t.storage not in read]
        results = results or mutated
        if not results or operator.name.startswith(_NO_WORK):
            return
        written = {tensor.storage for tensor in (*results, *mutated)}
        flops = product_flops or sum(tensor.elements for tensor in results)
        memory_bytes = sum(t.size_bytes for t in (*_tensors(operator.inputs), *results))
        after = self._dependencies(operator, read, written, waits=True)
        self.nodes.append(
            ComputeNode(
                id=operator.id,
                name=operator.name,
                after=after,
                duration_ns=self._compute_ns(flops, memory_bytes),
                flops=flops,
                memory_bytes=memory_bytes,
            )
        )

    def communicate(self, operator: _Operator) -> None:
        """A c10d operator. Raises ChakraError when it cannot be told what it does."""
        name = operator.name.removeprefix(_COMMUNICATION)
        touched = {tensor.storage for tensor in _tensors(operator.inputs)}
        try:
            # send and recv_ say nothing of it; PyTorch's blocking calls wait for their work.
            waits = not operator.argument("async_op")
        except KeyError:
            waits = True
        after = self._dependencies(operator, touched, touched, waits=waits)
        try:
            self.nodes.append(self._message(operator, name, after))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ChakraError(
                self._path,
                None,
                f"node {operator.id} ({operator.name}) cannot be understood: {error}",
            ) from None

    def _message(self, operator: _Operator, name: str, after: tuple[int, ...]) -> GraphNode:
        if operator.id in self._calls:
            return self._recorded(operator, self._calls[operator.id], after)
        if name in ("send", "recv_"):
            sends = name == "send"
            size_bytes = sum(t.size_bytes for t in _tensors(operator.argument("tensors")))
            return (SendNode if sends else ReceiveNode)(
                id=operator.id,
                name=operator.name,
                after=after,
                peer=operator.argument("dst" if sends else "src"),
                size_bytes=size_bytes,
                tag=operator.argument("tag"),
            )
        if name not in _COLLECTIVES:
            raise ValueError(f"only {', '.join(_COLLECTIVES)}, send and recv_ are known")
        kind, about, shard = _COLLECTIVES[name]
        if name == "alltoall_base_":
            self._uneven += len(set(operator.argument("input_split_sizes"))) > 1
        ranks = self._observed.world
        tensors = [] if about is None else list(_tensors(operator.argument(about)))
        size_bytes = sum(tensor.size_bytes for tensor in tensors) * (len(ranks) if shard else 1)
        rooted = any(parameter.name == "root_rank" for parameter in operator.parameters())
        root = operator.argument("root_rank") if rooted else 0
        call = CollectiveCall(
            kind,
            size_bytes,
            ranks,
            element_bytes=tensors[0].element_bytes if tensors else 1,
            root=root,
        )
        return CollectiveNode(id=operator.id, name=operator.name, after=after, call=call)

    def _recorded(self, operator: _Operator, call: NcclCall, after: tuple[int, ...]) -> GraphNode:
        """A c10d operator by what NCCL was told."""
        self._uneven += call.uneven
        part = call.part(call.ranks[0])
        if isinstance(part, Message):
            return (SendNode if part.sends else ReceiveNode)(
                id=operator.id,
                name=operator.name,
                after=after,
                peer=part.peer,
                size_bytes=part.size_bytes,
            )
        return CollectiveNode(id=operator.id, name=operator.name, after=after, call=part)

    def _dependencies(
        self, operator: _Operator, read: set[int], written: set[int], *, waits: bool
    ) -> tuple[int, ...]:
        """The nodes before: on the thread, writers of what is read, users of what is written."""
        after: dict[int, None] = {}
        if operator.thread in self._last_on_thread:
            after[self._last_on_thread[operator.thread]] = None
        for storage in sorted(read | written):
            if storage in self._writer:
                after[self._writer[storage]] = None
        for storage in sorted(written):
            after.update(dict.fromkeys(self._readers.pop(storage, ())))
            self._writer[storage] = operator.id
        for storage in sorted(read - written):
            self._readers[storage].append(operator.id)
        if waits:
            self._last_on_thread[operator.thread] = operator.id
        return tuple(after)


def _within(observed: ObserverFile) -> dict[int, NcclCall]:
    """What NCCL was told, by the c10d operator around it: the last one that began before it on its
    thread and ended behind it."""
    calls = observed.calls
    found: dict[int, NcclCall] = {}
    around: dict[int, _Operator] = {}
    for operator in observed.operators if calls else ():
        if operator.name.startswith(_COMMUNICATION):
            around[operator.thread] = operator
        elif operator.id in calls and operator.thread in around:
            caller = around[operator.thread]
            if caller.end > operator.end:
                found[caller.id] = calls[operator.id]
    return found


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


def _computes(operator: _Operator) -> bool:
    """Whether it is an operator, and neither communication nor what that does on its own thread."""
    return bool(operator.schema) and not operator.name.startswith((_COMMUNICATION, _BACKEND))


def _operator(node: dict[str, Any], end: int) -> _Operator:
    attributes = {item["name"]: item["value"] for item in node["attrs"]}
    return _Operator(
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


def _tensors(value: Any) -> Iterator[_Tensor]:
    """Every tensor in a value: [tensor, storage, offset, elements, bytes each, device]."""
    if not isinstance(value, list):
        return
    if (
        len(value) == 6
        and isinstance(value[5], str)
        and all(isinstance(item, int) for item in value[:5])
    ):
        yield _Tensor(value[1], value[3] * value[4], value[3], value[4])
        return
    for item in value:
        yield from _tensors(item)


def _product_flops(operator: _Operator) -> int:
    """Operations of a matrix product or a convolution, 0 for other operators."""
    elements = sum(tensor.elements for tensor in _tensors(operator.outputs))
    if operator.name in _PRODUCTS:
        left = operator.shapes[_PRODUCTS[operator.name]]
        return int(2 * elements * left[-1])
    if operator.name == _CONVOLUTION:
        # Each result takes a product with one filter (Cin / groups, then the kernel).
        return int(2 * elements * prod(operator.shapes[1][1:]))
    return 0

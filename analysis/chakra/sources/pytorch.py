"""PyTorch's own execution traces (ExecutionTraceObserver) as graphs.

The observer writes every operator with its caller, its tensors and their storages, but no times.
Operators that no other operator called become computation (with the products that they called
counted), c10d operators become communication; the order on each thread and the storages that they
read and write give the dependencies. Chakra's own converter knows NCCL's kernels only and would
leave a Gloo run without communication.

`record_param_comms` within a c10d operator says in which process group NCCL's operator is; nothing
says so of Gloo's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    Graph,
    GraphNode,
    ReceiveNode,
    SendNode,
)
from analysis.chakra.sources.nccl_calls import NcclCall
from analysis.chakra.sources.observer_file import ObserverFile, Operator, tensors_of
from analysis.chakra.sources.recorded import Message
from collectives.call import CollectiveCall
from collectives.kinds import Kind

_COMMUNICATION = "c10d::"
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
    groups, receives from anyone). `document` is the file's contents, where they have been read.
    """
    observed = ObserverFile(path, document)
    builder = _Builder(observed, compute_ns)
    # By thread: the last outermost operator; and the products within each of those.
    outermost: dict[int, Operator] = {}
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

    def compute(self, operator: Operator, product_flops: int) -> None:
        """An operator that computes; views and allocations do not."""
        read = {tensor.storage for tensor in tensors_of(operator.inputs)}
        mutated = list(operator.mutated())
        results = [t for t in tensors_of(operator.outputs) if mutated or t.storage not in read]
        results = results or mutated
        if not results or operator.name.startswith(_NO_WORK):
            return
        written = {tensor.storage for tensor in (*results, *mutated)}
        flops = product_flops or sum(tensor.elements for tensor in results)
        memory_bytes = sum(t.size_bytes for t in (*tensors_of(operator.inputs), *results))
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

    def communicate(self, operator: Operator) -> None:
        """A c10d operator. Raises ChakraError when it cannot be told what it does."""
        name = operator.name.removeprefix(_COMMUNICATION)
        touched = {tensor.storage for tensor in tensors_of(operator.inputs)}
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

    def _message(self, operator: Operator, name: str, after: tuple[int, ...]) -> GraphNode:
        if operator.id in self._calls:
            return self._recorded(operator, self._calls[operator.id], after)
        if name in ("send", "recv_"):
            sends = name == "send"
            size_bytes = sum(t.size_bytes for t in tensors_of(operator.argument("tensors")))
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
        tensors = [] if about is None else list(tensors_of(operator.argument(about)))
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

    def _recorded(self, operator: Operator, call: NcclCall, after: tuple[int, ...]) -> GraphNode:
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
        self, operator: Operator, read: set[int], written: set[int], *, waits: bool
    ) -> tuple[int, ...]:
        """The nodes before: on the thread, writers of the storages that it reads, users of those
        that it writes."""
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
    """NCCL's call, by the c10d operator around it: the last one that began before it on its thread
    and ended behind it."""
    calls = observed.calls
    found: dict[int, NcclCall] = {}
    around: dict[int, Operator] = {}
    for operator in observed.operators if calls else ():
        if operator.name.startswith(_COMMUNICATION):
            around[operator.thread] = operator
        elif operator.id in calls and operator.thread in around:
            caller = around[operator.thread]
            if caller.end > operator.end:
                found[caller.id] = calls[operator.id]
    return found


def _computes(operator: Operator) -> bool:
    """Whether it is an operator, and neither communication nor what that does on its own thread."""
    return bool(operator.schema) and not operator.name.startswith((_COMMUNICATION, _BACKEND))


def _product_flops(operator: Operator) -> int:
    """Operations of a matrix product or a convolution, 0 for other operators."""
    elements = sum(tensor.elements for tensor in tensors_of(operator.outputs))
    if operator.name in _PRODUCTS:
        left = operator.shapes[_PRODUCTS[operator.name]]
        return int(2 * elements * left[-1])
    if operator.name == _CONVOLUTION:
        # Each result takes a product with one filter (Cin / groups, then the kernel).
        return int(2 * elements * prod(operator.shapes[1][1:]))
    return 0

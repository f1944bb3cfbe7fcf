"""A Chakra node, checked and reduced to what the workload layer needs."""

from dataclasses import dataclass
from pathlib import Path

from analysis.astra.errors import AstraInputError
from analysis.chakra.check import check_trace
from analysis.chakra.errors import ChakraError
from analysis.chakra.foreign import as_feeder_reads
from analysis.chakra.schema import CollectiveType, NodeType
from analysis.chakra.trace import Trace, TraceNode

POINT_TO_POINT = (NodeType.COMM_SEND, NodeType.COMM_RECV)


@dataclass(frozen=True, slots=True)
class Task:
    """One node. `collective`, `size_bytes`, `peer`, `tag`, `group`, ... are set where they apply.

    `runtime_ns` is the recorded duration, at least 1 ns as the original has it.
    """

    id: int
    type: NodeType
    on_cpu: bool
    parents: frozenset[int]
    runtime_ns: int
    collective: CollectiveType | None = None
    size_bytes: int = 0
    peer: int = 0
    tag: int = 0
    group: str = ""
    priority: int = 0
    involved: tuple[bool, ...] | None = None
    num_ops: int | None = None
    tensor_bytes: int | None = None


def read_tasks(trace: Trace, rank: int, path: Path | str) -> tuple[Task, ...]:
    """The tasks of one rank's trace. Raises AstraInputError for what ASTRA-sim cannot run."""
    trace, _ = as_feeder_reads(trace)
    try:
        check_trace(trace, path)
        return tuple(_task(node, rank) for node in trace.nodes)
    except ChakraError as error:
        raise AstraInputError(path, error.place, error.what) from None
    except ValueError as error:
        raise AstraInputError(path, None, str(error)) from None


def _task(node: TraceNode, rank: int) -> Task:
    kind = NodeType(node.type)
    if kind is NodeType.METADATA:
        raise ValueError(f"node {node.id} is METADATA, on which ASTRA-sim 2.x aborts")
    on_cpu = bool(node.integer("is_cpu_op") or 0)
    fields: dict[str, object] = {}
    if kind is NodeType.COMM_COLL or kind in POINT_TO_POINT:
        if on_cpu:
            raise ValueError(f"node {node.id} communicates but has is_cpu_op true")
        fields["size_bytes"] = node.integer("comm_size")
    if kind is NodeType.COMM_COLL:
        fields |= _collective_fields(node)
    elif kind in POINT_TO_POINT:
        fields |= _point_to_point_fields(node, rank, kind)
    elif kind in (NodeType.MEM_LOAD, NodeType.MEM_STORE):
        fields["tensor_bytes"] = node.integer("tensor_size")
    elif kind is NodeType.COMP:
        fields["num_ops"] = node.integer("num_ops")
        fields["tensor_bytes"] = node.integer("tensor_size")
    return Task(
        id=node.id,
        type=kind,
        on_cpu=on_cpu,
        parents=frozenset((*node.ctrl_deps, *node.data_deps)),
        runtime_ns=node.duration_micros * 1000 or 1,
        **fields,  # type: ignore[arg-type]
    )


def _collective_fields(node: TraceNode) -> dict[str, object]:
    involved = node.attribute("involved_dim")
    if involved is not None and not (
        isinstance(involved, tuple) and all(isinstance(item, bool) for item in involved)
    ):
        raise ValueError(f"node {node.id}: involved_dim is {involved!r}, not a list of bools")
    group = node.attribute("pg_name")
    if group is None:
        group = ""
    if not isinstance(group, str) or not (group == "" or group.isdecimal()):
        raise ValueError(f"node {node.id}: pg_name is {group!r}, not a group's number as text")
    return {
        "collective": node.collective,
        "group": "" if group == "0" else group,
        "priority": node.integer("comm_priority") or 0,
        "involved": involved,
    }


def _point_to_point_fields(node: TraceNode, rank: int, kind: NodeType) -> dict[str, object]:
    sends = kind is NodeType.COMM_SEND
    own, peer = ("comm_src", "comm_dst") if sends else ("comm_dst", "comm_src")
    named = node.integer(own)
    if named is not None and named != rank:
        raise ValueError(f"node {node.id} is in the trace of rank {rank}, but {own} is {named}")
    return {"peer": node.integer(peer), "tag": node.integer("comm_tag")}

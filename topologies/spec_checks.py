"""Checks across the sections of a spec, each of which is valid by itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points

from topologies.build import build_fabric
from topologies.fabric import Fabric
from topologies.fabric_spec import GraphSpec
from topologies.sections import Sections
from topologies.selectors import links_between, select_ports
from topologies.spec_error import Key, Problem, shown, suggestion
from topologies.wiring import FabricError
from topologies.workload_spec import (
    ITEM_BYTES,
    Barrier,
    Collective,
    CollectivesWorkload,
    DlrmWorkload,
    Incast,
    Operation,
    Permutation,
    RootedCollective,
    SendRecv,
)

PREDICTORS = ("alpha-beta", "astra-analytical", "flow", "flow-ideal-ecmp", "ns3", "textbook")
PREDICTOR_ENTRY_POINTS = "groundwire.predictors"


def check(spec: Sections) -> list[Problem]:
    """Every disagreement between sections; empty when the spec can be run."""
    problems = list(_workload_problems(spec))
    problems += _predictor_problems(spec)
    if spec.compute.device == "real" and spec.scale not in (1, "auto"):
        problems.append(
            Problem(("scale",), shown(spec.scale), "expected 1 or auto with compute.device: real")
        )
    try:
        fabric = build_fabric(spec.fabric)
    except FabricError as error:
        problems.append(
            Problem(("fabric", *error.key), str(error.found), f"expected {error.expected}")
        )
        return problems
    hosts = len(fabric.hosts)
    if spec.workload.ranks > hosts:
        problems.append(
            Problem(
                ("workload", "ranks"),
                str(spec.workload.ranks),
                f"expected at most {hosts}: the fabric has {hosts} hosts and a host runs one rank",
            )
        )
    problems += _queue_problems(spec, fabric)
    problems += _placement_problems(spec, fabric)
    problems += _selector_problems(spec, fabric)
    problems += _fault_problems(spec, fabric)
    return problems


def _queue_problems(spec: Sections, fabric: Fabric) -> Iterator[Problem]:
    section = spec.fabric
    mtu_bytes = max(link.mtu_bytes for link in fabric.links)
    queues: list[tuple[Key, int]] = [(("fabric", "queue"), section.queue.buffer_bytes)]
    queues += [(("fabric", "queues", n), q.buffer_bytes) for n, q in section.queues.items()]
    if isinstance(section, GraphSpec):
        queues += [
            (("fabric", "links", i, "queue"), link.queue.buffer_bytes)
            for i, link in enumerate(section.links)
            if link.queue is not None
        ]
    for key, buffer_bytes in queues:
        if buffer_bytes < mtu_bytes:
            yield Problem(
                (*key, "buffer"),
                str(buffer_bytes),
                f"expected at least one packet: the largest MTU is {mtu_bytes} bytes",
            )


def _placement_problems(spec: Sections, fabric: Fabric) -> Iterator[Problem]:
    if isinstance(spec.placement, str):
        return
    ranks = spec.workload.ranks
    hosts = [host.name for host in fabric.hosts]
    taken: dict[str, int] = {}
    for rank, host in spec.placement.items():
        if not 0 <= rank < ranks:
            yield Problem(("placement", rank), host, f"expected ranks from 0 to {ranks - 1}")
        elif host not in hosts:
            expected = f"{suggestion(host, hosts)}expected a host, {hosts[0]} to {hosts[-1]}"
            yield Problem(("placement", rank), host, expected)
        elif host in taken:
            expected = f"expected another host: rank {taken[host]} is on {host}"
            yield Problem(("placement", rank), host, expected)
        taken.setdefault(host, rank)
    missing = [rank for rank in range(ranks) if rank not in spec.placement]
    if missing:
        yield Problem(
            ("placement",), f"no host for rank {missing[0]}", "expected one for each rank"
        )


def _selector_problems(spec: Sections, fabric: Fabric) -> Iterator[Problem]:
    lists = (
        (("capture", "points"), spec.capture.points),
        (("counters", "ports"), spec.counters.ports),
    )
    for key, selectors in lists:
        for index, selector in enumerate(selectors):
            try:
                select_ports(fabric, selector)
            except ValueError as error:
                yield Problem((*key, index), selector, str(error))


def _fault_problems(spec: Sections, fabric: Fabric) -> Iterator[Problem]:
    for index, fault in enumerate(spec.faults):
        try:
            links_between(fabric, fault.link)
        except ValueError as error:
            yield Problem(("faults", index, "link"), fault.link, str(error))
        iterations = spec.workload.iterations
        if fault.iteration is not None and fault.iteration >= iterations:
            yield Problem(
                ("faults", index, "iteration"),
                str(fault.iteration),
                f"expected at most {iterations - 1}: the workload has {iterations} iterations",
            )


def _predictor_problems(spec: Sections) -> Iterator[Problem]:
    allowed = _predictors()
    for index, name in enumerate(spec.predict):
        if name not in allowed:
            expected = f"{suggestion(name, allowed)}allowed: {', '.join(allowed)}"
            yield Problem(("predict", index), name, expected)


@cache
def _predictors() -> list[str]:
    plugged_in = [point.name for point in entry_points(group=PREDICTOR_ENTRY_POINTS)]
    return sorted({*PREDICTORS, *plugged_in})


def _workload_problems(spec: Sections) -> Iterator[Problem]:
    workload = spec.workload
    if isinstance(workload, CollectivesWorkload):
        item_bytes = ITEM_BYTES[workload.dtype]
        for index, operation in enumerate(workload.operations):
            key: Key = ("workload", "operations", index)
            yield from _operation_problems(operation, key, workload.ranks, item_bytes)
    elif isinstance(workload, DlrmWorkload):
        elements = workload.batch_size * workload.sparse_features * workload.embedding_dimension
        if elements % workload.ranks:
            yield Problem(
                ("workload",),
                f"batch_size * sparse_features * embedding_dimension = {elements}",
                f"expected a multiple of ranks = {workload.ranks}, to split the AlltoAll evenly",
            )


def _operation_problems(
    operation: Operation, key: Key, ranks: int, item_bytes: int
) -> Iterator[Problem]:
    if isinstance(operation, Barrier):
        return
    split = operation.kind in ("all_to_all", "all_gather", "reduce_scatter", "gather", "scatter")
    step = item_bytes * ranks if split else item_bytes
    if operation.size_bytes % step:
        nearest = max(1, round(operation.size_bytes / step)) * step
        what = "ranks * bytes of the dtype" if split else "the bytes of the dtype"
        yield Problem(
            (*key, "size"),
            str(operation.size_bytes),
            f"expected a multiple of {what} = {step}, such as {nearest}",
        )
    if isinstance(operation, (RootedCollective, SendRecv, Incast)) and operation.root >= ranks:
        yield Problem((*key, "root"), str(operation.root), f"expected a rank from 0 to {ranks - 1}")
    match operation:
        case Collective() | RootedCollective():
            return
        case SendRecv():
            if operation.peer >= ranks or operation.peer == operation.root:
                yield Problem(
                    (*key, "peer"),
                    str(operation.peer),
                    f"expected a rank from 0 to {ranks - 1} other than root",
                )
        case Incast():
            if operation.degree is not None and operation.degree > ranks - 1:
                yield Problem(
                    (*key, "degree"),
                    str(operation.degree),
                    f"expected at most ranks - 1 = {ranks - 1} senders",
                )
        case Permutation():
            if operation.shift is not None and operation.shift % ranks == 0:
                yield Problem(
                    (*key, "shift"),
                    str(operation.shift),
                    f"expected no multiple of ranks = {ranks}: a rank does not send to itself",
                )

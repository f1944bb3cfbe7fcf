"""Checks across the sections of a spec, each of which is valid by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module

from topologies.ethernet import ETHERNET_HEADER_BYTES
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.fabrics.placement import OPTIMIZE
from topologies.fabrics.selectors import links_between, select_ports
from topologies.fabrics.wiring import FabricError
from topologies.routing.choices import MOST_NEXT_HOPS
from topologies.routing.routes import compute_routes
from topologies.spec.copies_checks import copies_problems
from topologies.spec.errors import Key, Problem, shown, suggestion
from topologies.spec.fabric_section import GraphSpec
from topologies.spec.jobs.checks import check_jobs
from topologies.spec.queue_section import Classes, QueueSpec
from topologies.spec.run_sections import (
    Freeze,
    Kill,
    MemoryLimit,
    NodeDies,
    Partition,
    ProcessFault,
    WrongClock,
)
from topologies.spec.sections import Sections
from topologies.spec.srv6_checks import srv6_problems
from topologies.spec.transports.checks import transport_problems
from topologies.spec.workloads import WORKLOADS
from topologies.units import format_time

Check = Callable[[Sections], Iterable[Problem]]

_ROOMS = (
    "collectives.spec_checks",
    "workloads.models.flow_sizes",
    "workloads.virtual_gpu.spec_checks",
    "analysis.predict.interface",
)
"""Modules of rooms above this one that know more of a spec than it does: collectives which sizes
divide, workloads how many flows are drawn and what virtual GPUs need, analysis which predictors
there are. Each has a tuple `CHECKS`. They are named here, and not imported, as imports go down
only; so a spec is as valid whatever a program has imported."""


@cache
def _checks_of_rooms() -> tuple[Check, ...]:
    found: list[Check] = []
    for name in _ROOMS:
        found += import_module(name).CHECKS
    return tuple(found)


def check(spec: Sections) -> list[Problem]:
    """Every disagreement between sections; empty when the spec can be run."""
    return check_jobs(spec, _check_one) if spec.jobs else _check_one(spec)


def _connect_only_problems(spec: Sections) -> list[Problem]:
    """The problem of `connect_only` in a run that knows nothing more once all ranks are
    connected."""
    if spec.workload.program is not None:
        what = "workload.kind: command: when programs connect is theirs to say"
    elif spec.virtual.connections == "lazy":
        what = "virtual.connections: lazy: ranks connect when they first communicate"
    else:
        return []
    return [Problem(("virtual", "connect_only"), "true", f"expected false with {what}")]


def _routing_problems(fabric: Fabric) -> Iterator[Problem]:
    """Problems of a routing that is no hash: hosts would choose, which only hash, or a node has too
    many next hops."""
    choice = fabric.choice
    if choice.by_linux:
        return
    key = ("fabric", "routing", "kind")
    for node, routes in compute_routes(fabric).tables.items():
        most = max((len(route.next_hops) for route in routes), default=0)
        if most > 1 and not fabric.by_name[node].layer:
            expected = (
                f"expected ecmp, weighted or static: {node} has several ways of its own, and "
            )
            yield Problem(key, choice.kind, expected + "only switches choose by more than a hash")
            return
        if most > MOST_NEXT_HOPS:
            expected = f"expected at most {MOST_NEXT_HOPS} next hops, {node} has {most}"
            yield Problem(key, choice.kind, expected)
            return


def _check_one(spec: Sections) -> list[Problem]:
    problems = [problem for each in _checks_of_rooms() for problem in each(spec)]
    if spec.compute.device == "real" and spec.scale not in (1, "auto"):
        problems.append(
            Problem(("scale",), shown(spec.scale), "expected 1 or auto with compute.device: real")
        )
    if spec.workload.program is not None and spec.virtual.ranks_per_process not in ("auto", 1):
        problems.append(
            Problem(
                ("virtual", "ranks_per_process"),
                str(spec.virtual.ranks_per_process),
                "expected 1 or auto with workload.kind: command: a program is a process of its own",
            )
        )
    if spec.virtual.connect_only:
        problems += _connect_only_problems(spec)
    problems += _charge_problems(spec)
    if spec.payload == "timing" and spec.workload.own_contents:
        problems.append(
            Problem(
                ("payload",),
                spec.payload,
                f"expected checked with workload.kind: {spec.workload.kind}, which sends contents "
                "of its own",
            )
        )
    try:
        fabric = build_fabric(spec.fabric)
    except FabricError as error:
        problems.append(
            Problem(("fabric", *error.key), str(error.found), f"expected {error.expected}")
        )
        return problems
    problems += _routing_problems(fabric)
    problems += srv6_problems(spec, fabric)
    problems += transport_problems(spec, fabric)
    hosts = len(fabric.hosts)
    together = spec.workload.ranks_on_host
    if spec.workload.ranks > hosts * together:
        of_each = "one rank" if together == 1 else f"{together} ranks"
        problems.append(
            Problem(
                ("workload", "ranks"),
                str(spec.workload.ranks),
                f"expected at most {hosts * together}: the fabric has {hosts} hosts and a host "
                f"runs {of_each}",
            )
        )
    problems += _queue_problems(spec, fabric)
    problems += _coalescing_problems(spec, fabric)
    problems += _host_problems(spec)
    problems += _class_problems(spec)
    problems += _placement_problems(spec, fabric)
    problems += _selector_problems(spec, fabric)
    problems += _fault_problems(spec, fabric)
    problems += copies_problems(spec, fabric)
    return problems


def _charge_problems(spec: Sections) -> Iterator[Problem]:
    workload = spec.workload.program
    if workload is None or not workload.charges:
        return
    key = ("workload", "charge" if workload.charge_by is None else "charge_by")
    found = "true" if workload.charge_by is None else workload.charge_by
    if not workload.observe:
        yield Problem(key, found, "expected none with observe: false: the observer charges")
    if workload.charge and workload.charge_by is not None:
        yield Problem(("workload", "charge"), "true", "expected false with charge_by")
    if workload.charge_by is None and not spec.compute.modelled:
        device = spec.compute.device
        expected = f"expected false with compute.device: {device}, which has no roofline"
        yield Problem(key, "true", expected)


def _queue_problems(spec: Sections, fabric: Fabric) -> Iterator[Problem]:
    section = spec.fabric
    mtu_bytes = max(link.mtu_bytes for link in fabric.links)
    queues: list[tuple[Key, QueueSpec]] = [(("fabric", "queue"), section.queue)]
    queues += [(("fabric", "queues", n), q) for n, q in section.queues.items()]
    if isinstance(section, GraphSpec):
        queues += [
            (("fabric", "links", i, "queue"), link.queue)
            for i, link in enumerate(section.links)
            if link.queue is not None
        ]
    for key, queue in queues:
        for of_queue, buffer_bytes in _buffers(key, queue):
            if buffer_bytes < mtu_bytes + ETHERNET_HEADER_BYTES:
                yield Problem(
                    (*of_queue, "buffer"),
                    str(buffer_bytes),
                    f"expected at least one frame, {mtu_bytes + ETHERNET_HEADER_BYTES} bytes: the "
                    f"largest MTU, {mtu_bytes}, and Ethernet's header",
                )


def _coalescing_problems(spec: Sections, fabric: Fabric) -> Iterator[Problem]:
    """A host that forwards would pass on what it has merged as one packet."""
    forwarding = next((host.name for host in fabric.hosts if host.forwards), None)
    if spec.held_ns and forwarding is not None:
        found = format_time(spec.held_ns)
        expected = f"expected 0 where hosts forward, as {forwarding} does"
        yield Problem(spec.held_by, found, expected)


def _host_problems(spec: Sections) -> Iterator[Problem]:
    """The charges of hosts whose messages do not go through calls of sockets."""
    if spec.host.charged and spec.transport.by_queue_pairs:
        found = spec.host.described()
        yield Problem(
            ("host",),
            found,
            f"expected nothing with transport.kind: {spec.transport.kind}, which copies nothing",
        )
    if spec.host.charged and spec.aggregation is not None:
        yield Problem(("host",), spec.host.described(), "expected nothing with aggregation")
    if spec.host.has_disk and spec.workload.program is None:
        key = "disk_read" if spec.host.disk_write_bytes_per_s is None else "disk_write"
        expected = "expected none but with a workload of kind command: only programs have files"
        yield Problem(("host", key), "a rate", expected)


def _buffers(key: Key, queue: QueueSpec) -> Iterator[tuple[Key, int]]:
    if not isinstance(queue, Classes):
        yield key, queue.buffer_bytes
        return
    for name, each in queue.classes.items():
        yield (*key, "classes", name, "queue"), each.queue.buffer_bytes


def _class_problems(spec: Sections) -> Iterator[Problem]:
    asked: list[tuple[Key, int | str | None]] = [
        (("class",), spec.traffic_class),
        (("transport", "class"), spec.transport.own_class),
    ]
    classes = spec.collectives.classes
    asked += [(("collectives", "classes", sort), name) for sort, name in classes]
    queue = spec.fabric.queue
    names = sorted(queue.classes) if isinstance(queue, Classes) else []
    for key, name in asked:
        if not isinstance(name, str) or name in names:
            continue
        known = f"{', '.join(names)} (fabric.queue.classes), or " if names else ""
        expected = f"{suggestion(name, names)}expected {known}a DSCP class selector, 0 to 7"
        yield Problem(key, name, expected)


def _placement_problems(spec: Sections, fabric: Fabric) -> Iterator[Problem]:
    if isinstance(spec.placement, str):
        if spec.placement == "model-stage-data" and spec.workload.degrees is None:
            expected = "expected a workload of kind training, or layers with hybrid-data-model"
            yield Problem(("placement",), spec.placement, expected)
        known = spec.workload.listed is not None or WORKLOADS[spec.workload.kind].actions
        if spec.placement == OPTIMIZE and not known:
            expected = (
                "expected another policy: what ranks of workload.kind "
                f"{spec.workload.kind} send is known when it runs"
            )
            yield Problem(("placement",), spec.placement, expected)
        return
    ranks = spec.workload.ranks
    hosts = [host.name for host in fabric.hosts]
    taken: dict[str, int] = {}
    together = spec.workload.ranks_on_host
    for rank, host in spec.placement.items():
        first = spec.placement.get(rank // together * together, host)
        if not 0 <= rank < ranks:
            yield Problem(("placement", rank), host, f"expected ranks from 0 to {ranks - 1}")
        elif host not in hosts:
            expected = f"{suggestion(host, hosts)}expected a host, {hosts[0]} to {hosts[-1]}"
            yield Problem(("placement", rank), host, expected)
        elif host != first:
            expected = f"expected {first}, as a host runs {together} neighbouring ranks"
            yield Problem(("placement", rank), host, expected)
        elif host in taken and taken[host] // together != rank // together:
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
        key = ("faults", index)
        if isinstance(fault, NodeDies):
            if spec.aggregation is None or fault.switch not in {n.name for n in fabric.routers}:
                expected = "expected a switch that aggregates, with a section aggregation"
                yield Problem((*key, "switch"), fault.switch, expected)
        elif isinstance(fault, ProcessFault):
            yield from _victim_problems(spec, fabric, key, fault)
        elif isinstance(fault, WrongClock):
            if fault.host not in {node.name for node in fabric.hosts}:
                yield Problem((*key, "host"), fault.host, "expected a host of the fabric")
            if spec.workload.program is None:
                expected = "expected a workload of kind command: only programs ask for the time"
                yield Problem((*key, "kind"), fault.kind, expected)
        elif isinstance(fault, Partition):
            known = {node.name for node in fabric.nodes}
            for name in fault.nodes:
                if name not in known:
                    yield Problem((*key, "nodes"), name, "expected nodes of the fabric")
        else:
            try:
                links_between(fabric, fault.link)
            except ValueError as error:
                yield Problem((*key, "link"), fault.link, str(error))
        program = spec.workload.program
        iterations = spec.workload.iterations
        counted = "iteration" if fault.iteration else "operation"
        if program is not None and fault.at_ns is None and fault.iteration != 0:
            if not program.observe:
                expected = "expected at (a time) with observe: false: the observer counts"
                yield Problem((*key, counted), fault.begins, expected)
        elif fault.operation is not None:
            expected = "expected a workload of kind command: operations of programs are counted"
            yield Problem((*key, "operation"), str(fault.operation), expected)
        elif fault.iteration is not None and fault.iteration >= iterations:
            yield Problem(
                ("faults", index, "iteration"),
                str(fault.iteration),
                f"expected at most {iterations - 1}: the workload has {iterations} iterations",
            )


def _victim_problems(
    spec: Sections, fabric: Fabric, key: Key, fault: ProcessFault
) -> Iterator[Problem]:
    """Ranks of Groundwire's own cannot join again; one that stands still or dies is a process of
    its own."""
    if fault.job is not None and fault.job != spec.name:
        yield Problem((*key, "job"), fault.job, f"expected the run's only job, {spec.name}")
    if fault.rank is not None and fault.rank >= spec.ranks:
        yield Problem((*key, "rank"), str(fault.rank), f"expected at most {spec.ranks - 1}")
    program = spec.workload.program
    shared = spec.virtual.ranks_per_process
    alone = isinstance(fault, Freeze) or (isinstance(fault, Kill) and fault.switch is None)
    if alone and isinstance(shared, int) and shared > 1:
        done = "frozen" if isinstance(fault, Freeze) else "killed"
        expected = f"expected 1 or auto: a rank that is {done} is a process of its own"
        yield Problem(("virtual", "ranks_per_process"), str(shared), expected)
    if isinstance(fault, Freeze):
        return
    if isinstance(fault, MemoryLimit):
        if program is None:
            expected = "expected a workload of kind command: only programs are limited"
            yield Problem((*key, "kind"), fault.kind, expected)
        return
    if fault.switch is None and program is None and fault.restart_ns is not None:
        expected = "expected none: Groundwire's own ranks cannot join again, only programs can"
        yield Problem((*key, "restart"), format_time(fault.restart_ns), expected)
    if fault.host is not None and fault.host not in {node.name for node in fabric.hosts}:
        yield Problem((*key, "host"), fault.host, "expected a host of the fabric")
    if fault.switch is not None and fault.switch not in {node.name for node in fabric.routers}:
        yield Problem((*key, "switch"), fault.switch, "expected a switch of the fabric")
    starts_ranks = program is not None and program.per != "rank"
    if fault.rank is not None and fault.restart_ns is not None and starts_ranks:
        expected = "expected none: what starts the ranks of a host starts them again, or a host"
        yield Problem((*key, "restart"), format_time(fault.restart_ns), expected)

"""Checks of a spec whose program has virtual GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from collectives.algorithms.aggregation import Aggregation
from collectives.program import PROGRAM_KINDS
from topologies.spec.errors import Problem
from topologies.spec.fabric_section import (
    FabricSpec,
    HierarchicalSpec,
    RailsSpec,
    ServersSection,
)
from topologies.spec.sections import Sections
from topologies.spec.workload_section import CommandWorkload


def gpu_problems(spec: Sections) -> Iterator[Problem]:
    """Disagreements between virtual GPUs and the other sections."""
    workload = spec.workload.program
    if workload is None:
        return
    yield from _network_problems(spec, workload)
    yield from _payload_problems(spec, workload)
    if workload.gpus_per_host is None:
        return
    key, found = ("workload", "gpus_per_host"), str(workload.gpus_per_host)
    if workload.ranks_per_host > 1:
        expected = "expected ranks_per_host: 1 with gpus_per_host, which has a rank for each GPU"
        yield Problem(("workload", "ranks_per_host"), str(workload.ranks_per_host), expected)
    if workload.per == "job":
        yield Problem(("workload", "per"), "job", "expected rank or host with gpus_per_host")
    if workload.charge:
        expected = "expected false with gpus_per_host: kernels of virtual GPUs have a time"
        yield Problem(("workload", "charge"), "true", expected)
    if spec.compute.device == "real":
        expected = "expected the name of an accelerator, custom or none with gpus_per_host"
        yield Problem(("compute", "device"), "real", expected)
    yield from _collectives_problems(spec)
    wrong = _servers_problem(spec.fabric, workload.gpus_per_host)
    if wrong is not None:
        yield Problem(key, found, wrong)
    elif workload.gpus_per_host > 1 and spec.placement in ("random", "strided"):
        expected = "expected linear, or hosts by rank: a server's GPUs have neighbouring ranks"
        yield Problem(("placement",), str(spec.placement), expected)


def _servers_problem(fabric: FabricSpec, gpus: int) -> str | None:
    """The servers that a fabric has, in words, where they have another number of GPUs."""
    if fabric.gpus_per_server == gpus:
        return None
    match fabric:
        case RailsSpec():
            return f"expected fabric.hosts_per_server, {fabric.hosts_per_server}"
        case HierarchicalSpec():
            if fabric.hosts_per_group == gpus:
                return None
            return f"expected fabric.hosts_per_group, {fabric.hosts_per_group}, or 1"
        case ServersSection():
            return (
                f"expected fabric.gpus_per_host, {fabric.gpus_per_host}; with several, "
                "fabric.links.scale-up says how fast a server's GPUs talk"
            )
        case _:
            return (
                "expected 1, as this fabric says nothing of links within a server; rails, flat, "
                "leaf-spine, fat-tree and hierarchical do"
            )


def _payload_problems(spec: Sections, workload: CommandWorkload) -> Iterator[Problem]:
    """The parts of a spec that a scaled payload, or invented choices, do not fit."""
    full = spec.compute.contents == "full"
    if spec.compute.routing_skew and full:
        expected = "expected 0 with contents: full, which has all choices real"
        yield Problem(("compute", "routing_skew"), str(spec.compute.routing_skew), expected)
    if workload.payload_share == 1:
        return
    key, found = ("workload", "scale_payload"), workload.scale_payload
    if workload.gpus_per_host is None:
        yield Problem(key, found, "expected 1 without gpus_per_host: it is of virtual GPUs")
    if full:
        expected = "expected 1 with compute.contents: full, as contents are sent whole"
        yield Problem(key, found, expected)
    if spec.transport.kind != "tcp":
        expected = "expected tcp with scale_payload: rates of queue pairs are not scaled"
        yield Problem(("transport", "kind"), spec.transport.kind, expected)
    if spec.collectives.backend == "nccl":
        expected = "expected gloo or programs with scale_payload: NCCL chooses by what is sent"
        yield Problem(("collectives", "backend"), "nccl", expected)
    if spec.host.charged:
        expected = "expected no charges with scale_payload: a host has fewer packets"
        yield Problem(("host",), "charges", expected)


def _collectives_problems(spec: Sections) -> Iterator[Problem]:
    """The parts of programs that collectives of virtual GPUs do not have."""
    section = spec.collectives
    for kind in PROGRAM_KINDS:
        entry = getattr(section, kind)
        if entry.get("algorithm") == Aggregation.name:
            expected = "expected an algorithm of hosts with gpus_per_host"
            yield Problem(("collectives", str(kind), "algorithm"), Aggregation.name, expected)
    several = (spec.workload.program is not None) and (spec.workload.program.gpus_per_host or 0) > 1
    if section.backend == "nccl" and several and not isinstance(spec.fabric, RailsSpec):
        expected = (
            "expected gloo or programs on this fabric: NCCL knows several GPUs of rails alone"
        )
        yield Problem(("collectives", "backend"), "nccl", expected)
    if section.order != "fifo":
        expected = "expected fifo with gpus_per_host: collectives of a group run one by one"
        yield Problem(("collectives", "order"), section.order, expected)


def _network_problems(spec: Sections, workload: CommandWorkload) -> Iterator[Problem]:
    """The parts of a spec that a simulated network does not have."""
    if not workload.simulated:
        return
    with_it = "with network: simulated"
    if workload.gpus_per_host is None:
        expected = "expected emulated without gpus_per_host: the backend nccl of virtual GPUs alone"
        yield Problem(
            ("workload", "network"), "simulated", f"{expected} posts to a simulated network"
        )
    if not workload.observe:
        yield Problem(
            ("workload", "observe"), "false", f"expected true {with_it}: nothing is captured"
        )
    if spec.capture.points:
        expected = f"expected [] {with_it}, in which there are no packets to capture"
        yield Problem(("capture", "points"), ", ".join(spec.capture.points), expected)
    if spec.faults:
        expected = f"expected none {with_it}: the engine follows no faults from outside"
        yield Problem(("faults",), f"{len(spec.faults)} faults", expected)
    if spec.transport.kind != "tcp":
        yield Problem(("transport", "kind"), spec.transport.kind, f"expected tcp {with_it}")
    elif spec.between_sockets.count > 1:
        expected = f"expected 1 {with_it}, where two ranks of a group have one"
        yield Problem(("transport", "connections"), str(spec.between_sockets.count), expected)
    if isinstance(spec.counters.interval_ns, int):
        expected = f"expected auto or none {with_it}: ports have totals alone"
        yield Problem(("counters", "interval"), f"{spec.counters.interval_ns} ns", expected)


CHECKS = (gpu_problems,)

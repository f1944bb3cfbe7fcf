"""Checks of a workload's collectives: sizes that divide, roots and peers that exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod
from typing import get_args

from collectives.algorithms import algorithm
from collectives.algorithms.aggregation import Aggregation
from collectives.algorithms.base import DoesNotFit
from collectives.groups import class_problems, sort_of, used_groups
from collectives.in_network.of_run import aggregation_problems, of_group
from collectives.in_network.on_demand import TreesOnDemand, makes_trees
from collectives.kinds import Kind, Shape, barrier_shape, rounded_elements, step_bytes
from collectives.msccl.elements import MscclError
from collectives.nccl.of_run import tuner_of
from collectives.nccl.schedule import nccl_algorithm
from collectives.nccl.switches import switches_of
from collectives.program import PROGRAM_KINDS
from collectives.schedule.gloo import GLOO
from collectives.settings import SCHEDULED, entry_of, schedule_of, settings_of
from topologies.spec.collectives_section import (
    QUEUE_PAIR_VARIABLES,
    SOCKET_VARIABLES,
    AlgorithmEntry,
    CollectivesSection,
)
from topologies.spec.errors import Key, Problem, shown
from topologies.spec.fabric_section import ServersSection
from topologies.spec.sections import Sections
from topologies.spec.spec import Spec
from topologies.spec.workload_section import (
    Barrier,
    CollectiveOperation,
    CollectivesWorkload,
    CommandWorkload,
    Incast,
    Operation,
    Permutation,
    RootedCollective,
    SendRecv,
    WorkloadSpec,
)
from topologies.spec.workload_types import (
    PAIR_TYPES,
    BitwiseOp,
    IntegerType,
    PairOp,
    ReduceOp,
)

_NOT_GLOOS = ("int16",)
"""Types that torch's Gloo does not have (GENERATE_ALL_TYPES in its ProcessGroupGloo.cpp), also for
collectives that only move them."""

_PROGRAMMED = (CollectiveOperation, RootedCollective, Barrier)
"""Operations that can have a program of their own."""

_NOMINAL_BYTES = 1 << 20
"""A size that most programs can cut, where a workload does not tell its sizes here."""


def workload_problems(spec: Sections) -> Iterator[Problem]:
    """Every mistake in the operations of a workload."""
    yield from spec.workload.problems()
    workload = spec.workload.listed
    if workload is not None:
        item_bytes = workload.item_bytes
        for index, operation in enumerate(workload.operations):
            key: Key = ("workload", "operations", index)
            yield from _operation_problems(operation, key, workload.ranks, item_bytes)
            if isinstance(operation, CollectiveOperation | RootedCollective):
                yield from _reduction_problems(spec, workload, operation, key)
        if workload.dtype in _NOT_GLOOS and any(_runs_on_gloo(spec, workload)):
            allowed = (
                "Gloo's collectives do not have it: expected another dtype, or programs for all "
                "collectives"
            )
            yield Problem(("workload", "dtype"), workload.dtype, allowed)


_OF_NCCL = ("version", "gpu", "cpu", "network", "net_latency_ns", "launch_ns", "env", "tuner")
"""Keys of the section that say something about NCCL alone."""


def nccl_problems(spec: Sections) -> Iterator[Problem]:
    """Keys of NCCL where it does not run, and what NCCL would refuse."""
    given = spec.collectives
    if given.backend != "nccl":
        for key in _OF_NCCL:
            if key in given.model_fields_set and getattr(given, key) not in (None, {}):
                if getattr(given, key) == type(given).model_fields[key].default:
                    continue  # as a resolved spec spells out every default
                expected = "expected backend: nccl beside it"
                yield Problem(
                    ("collectives", key.removesuffix("_ns")), shown(getattr(given, key)), expected
                )
        return
    yield from _connection_problems(spec)
    if isinstance(spec.fabric, ServersSection) and spec.fabric.gpus_per_host > 1:
        expected = (
            "expected gloo or programs with fabric.gpus_per_host, or fabric.kind: rails: NCCL "
            "counts a NIC for each GPU"
        )
        yield Problem(("collectives", "backend"), "nccl", expected)
        return
    try:
        section = settings_of(spec)
        if section.servers is None:
            return
        workload = spec.workload
        kinds = [kind for kind in PROGRAM_KINDS if not getattr(section, kind)]
        if workload.listed is not None:
            asked = {operation.kind for operation in workload.listed.operations}
            kinds = [kind for kind in kinds if kind in asked]
        for kind in kinds:
            for shape, members in _shapes(workload, kind, every=False):
                if shape.ranks > 1:
                    group = tuple(range(shape.ranks)) if members is None else members
                    switches = switches_of(of_group(section, group))
                    nccl_algorithm(tuner_of(section, group), shape, switches)
    except DoesNotFit as error:
        yield Problem(("collectives", *error.key.split(".")), error.found, _allowed(error))


def _connection_problems(spec: Sections) -> Iterator[Problem]:
    """NCCL's variables of queue pairs and of sockets where there are none of these, and beside the
    transport's own keys."""
    transport, asked = spec.transport, spec.between_ranks
    own, env = transport.between_ranks, spec.collectives.env
    for names, has, expected in (
        (
            QUEUE_PAIR_VARIABLES,
            transport.by_queue_pairs,
            "roce or mrc beside it: TCP has no queue pairs",
        ),
        (
            SOCKET_VARIABLES,
            not transport.of_programs,
            "tcp beside it: programs have no sockets over another transport",
        ),
    ):
        for name in names:
            if name not in env:
                continue
            key = ("collectives", "env", name)
            if has:
                if own.count > 1 and own != asked:
                    both = "expected either it or transport.connections, not both"
                    yield Problem(key, env[name], both)
            elif env[name] != ("0" if name.startswith("NCCL_IB_SPLIT") else "1"):
                yield Problem(key, env[name], f"expected transport.kind: {expected}")


def _allowed(error: DoesNotFit) -> str:
    return f"allowed: {error.allowed}"


def _settings(spec: Sections) -> CollectivesSection:
    """The section of the run; as given where `nccl_problems` tells what is wrong with it."""
    try:
        return settings_of(spec)
    except DoesNotFit:
        return spec.collectives.model_copy(update={"backend": "gloo"})


def program_problems(spec: Sections) -> Iterator[Problem]:
    """Every entry of the `collectives` section, and of an operation, that does not fit."""
    section = _settings(spec)
    workload = spec.workload
    if section.backend != "gloo" and workload.from_files:
        yield Problem(
            ("collectives", "backend"),
            section.backend,
            "expected gloo: the groups of a replayed trace are not known beforehand",
        )
        return
    yield from _unused_problems(spec)
    if workload.program is not None:
        yield from _of_command(spec, section, workload.program)
    if section.dimensions is not None and prod(section.dimensions) != workload.ranks:
        yield Problem(
            ("collectives", "dimensions"),
            shown(list(section.dimensions)),
            f"expected sizes whose product is the ranks, {workload.ranks}",
        )
    for kind in PROGRAM_KINDS:
        entry: AlgorithmEntry = getattr(section, kind)
        if entry:
            key: Key = ("collectives", kind)
            # Each group has a tree of its own, or none.
            every = entry.get("algorithm") == Aggregation.name
            planned = _with_tree_of_all(spec, section) if every else section
            for shape, members in _shapes(workload, kind, every):
                problem = _program_problem(planned, shape, entry, key, members)
                if problem is not None:
                    yield problem
                    break
    if workload.listed is not None:
        for index, operation in enumerate(workload.listed.operations):
            if isinstance(operation, _PROGRAMMED) and operation.program:
                key = ("workload", "operations", index, "program")
                if isinstance(operation, Barrier):
                    shape = barrier_shape(workload.ranks)
                else:
                    shape = _shape(workload.listed, operation)
                problem = _program_problem(section, shape, operation.program, key)
                if problem is not None:
                    yield problem


def _with_tree_of_all(spec: Sections, section: CollectivesSection) -> CollectivesSection:
    """The section with the trees that the group of all ranks of a program gets, as most make one;
    of other workloads, as it is."""
    if not makes_trees(spec):
        return section
    assert isinstance(spec, Spec)
    try:
        trees = TreesOnDemand({"": spec}, ()).give("", range(spec.workload.ranks))[1]
    except (ValueError, KeyError):  # told by the checks of the fabric and of placement
        return section
    return section.model_copy(update={"aggregation": trees})


def _unused_problems(spec: Sections) -> Iterator[Problem]:
    """Algorithms that the spec names without the backend that runs them."""
    section = spec.collectives
    if "backend" in section.model_fields_set:
        return
    for kind in PROGRAM_KINDS:
        if getattr(section, kind):
            allowed = "expected backend: programs beside it; with backend: gloo all is Gloo's own"
            yield Problem(("collectives", str(kind)), shown(getattr(section, kind)), allowed)


def _of_command(
    spec: Sections, section: CollectivesSection, workload: CommandWorkload
) -> Iterator[Problem]:
    """Keys that a program of the user's cannot have."""
    if section.backend == "gloo":
        return
    if not workload.observe:
        expected = "expected gloo with observe: false: the observer has torch run programs"
        yield Problem(("collectives", "backend"), section.backend, expected)
    if makes_trees(spec):
        assert isinstance(spec, Spec) and spec.aggregation is not None
        if spec.aggregation.middles is not None:
            expected = "expected none with a program: FRED's groups are routed before the run"
            yield Problem(("aggregation", "middles"), str(spec.aggregation.middles), expected)
        if spec.aggregation.when_lost != "fail":
            expected = "expected fail with a program, whose groups do not survive a node yet"
            yield Problem(("aggregation", "when_lost"), spec.aggregation.when_lost, expected)


def fall_back_problems(spec: Sections) -> Iterator[Problem]:
    """An algorithm of hosts that there is not, where collectives of switches may fall back."""
    section = spec.aggregation
    if section is None or "fall-back" not in (section.when_full, section.when_lost):
        return
    given = {key: value for key, value in section.fall_back.items() if key not in SCHEDULED}
    try:
        algorithm(given.pop("algorithm"), **given)
    except DoesNotFit as error:
        key: Key = ("aggregation", "fall_back", error.key or "algorithm")
        yield Problem(key, error.found, f"allowed: {error.allowed}")


def unused_transport(spec: Sections) -> Iterator[Problem]:
    """A transport of programs, or connections of them, for a workload of which nothing would use
    it."""
    workload = spec.workload
    several = spec.between_sockets.count > 1
    if not (spec.transport.of_programs or several) or workload.program is not None:
        return
    listed = () if workload.listed is None else workload.listed.operations
    asked = any(map(_has_own, listed))
    section = _settings(spec)
    kinds = {Kind(kind) for kind in PROGRAM_KINDS}
    if listed:
        kinds &= {Kind(operation.kind) for operation in listed}
    if asked or any(entry_of(section, kind) for kind in kinds):
        return
    if several:
        found = str(spec.between_sockets.count)
        allowed = "expected 1, or an algorithm for a collective (collectives.backend: programs): "
        allowed += "Gloo's own collectives go by one connection"
        yield Problem(("transport", "connections"), found, allowed)
        return
    if section.backend == "gloo":
        allowed = "expected tcp, or collectives.backend: programs: Gloo's collectives go over TCP"
    else:
        allowed = "expected tcp, or an algorithm for a collective, such as collectives."
        allowed += f"{min(kinds or PROGRAM_KINDS)}.algorithm: those without one are Gloo's own, "
        allowed += "and go over TCP"
    yield Problem(("transport", "kind"), spec.transport.kind, allowed)


def _reduction_problems(
    spec: Sections,
    workload: CollectivesWorkload,
    operation: CollectiveOperation | RootedCollective,
    key: Key,
) -> Iterator[Problem]:
    """Operations on what does not reduce, and on types that have no bits."""
    if not Kind(operation.kind).traits.reduces:
        if operation.op != "sum":
            yield Problem((*key, "op"), operation.op, f"no op: {operation.kind} does not reduce")
        return
    no_bits = () if workload.dtype in get_args(IntegerType) else get_args(BitwiseOp)
    no_pairs = () if workload.dtype in PAIR_TYPES else get_args(PairOp)
    if operation.op in (*no_bits, *no_pairs):
        known = [op for op in get_args(ReduceOp) if op not in (*no_bits, *no_pairs)]
        allowed = f"allowed for {workload.dtype}: {', '.join(known)}"
        yield Problem((*key, "op"), operation.op, allowed)
    elif operation.op in get_args(PairOp) and _is_gloos(spec, workload, operation):
        expected = "Gloo does not reduce pairs: expected a program for it"
        yield Problem((*key, "op"), operation.op, expected)


def _runs_on_gloo(spec: Sections, workload: CollectivesWorkload) -> Iterator[bool]:
    """For each collective: whether Gloo's own algorithm runs it. Messages are bytes to it."""
    for operation in workload.operations:
        if isinstance(operation, CollectiveOperation | RootedCollective):
            yield _is_gloos(spec, workload, operation)


def _is_gloos(
    spec: Sections, workload: CollectivesWorkload, operation: CollectiveOperation | RootedCollective
) -> bool:
    """Whether Gloo's own algorithm runs a collective."""
    with suppress(DoesNotFit, MscclError):  # told by the checks of programs
        shape = _shape(workload, operation)
        return schedule_of(_settings(spec), shape, operation.program) == GLOO
    return False


def _shapes(
    workload: WorkloadSpec, kind: Kind, every: bool
) -> Iterator[tuple[Shape, tuple[int, ...] | None]]:
    """The collectives of a kind in a workload, and their groups (None: all): of models, by every
    one of their groups, or one of each sort."""
    if workload.listed is not None:
        asked = [op for op in workload.listed.operations if op.kind == kind and not _has_own(op)]
        for operation in asked:
            if isinstance(operation, (CollectiveOperation, RootedCollective)):
                yield _shape(workload.listed, operation), None
        if asked:
            return
    groups = used_groups(workload)
    if groups == (tuple(range(workload.ranks)),) or not groups:
        yield Shape(kind, _NOMINAL_BYTES * workload.ranks, workload.ranks, 4), None
        return
    sorts = set()
    for members in groups:
        sort = sort_of(members)
        if every or sort not in sorts:
            sorts.add(sort)
            yield Shape(kind, _NOMINAL_BYTES * len(members), len(members), 4), members


def _has_own(operation: Operation) -> bool:
    return isinstance(operation, _PROGRAMMED) and bool(operation.program)


def _shape(
    workload: CollectivesWorkload, operation: CollectiveOperation | RootedCollective
) -> Shape:
    kind = Kind(operation.kind)
    item_bytes = workload.item_bytes
    elements = rounded_elements(kind, operation.size_bytes, workload.ranks, item_bytes)
    root = min(getattr(operation, "root", 0), workload.ranks - 1)
    return Shape(kind, elements * item_bytes, workload.ranks, item_bytes, root)


def _program_problem(
    section: CollectivesSection,
    shape: Shape,
    entry: AlgorithmEntry,
    key: Key,
    members: Sequence[int] | None = None,
) -> Problem | None:
    try:
        schedule_of(section, shape, entry, members)
    except MscclError as error:
        return Problem((*key, "file"), str(error), "expected an MSCCL file that is right")
    except DoesNotFit as error:
        parts = [int(part) if part.isdecimal() else part for part in error.key.split(".") if part]
        if parts and parts[0] not in entry and parts[0] in type(section).model_fields:
            key = ("collectives",)
        return Problem((*key, *parts), error.found, f"allowed: {error.allowed}")
    return None


def _operation_problems(
    operation: Operation, key: Key, ranks: int, item_bytes: int
) -> Iterator[Problem]:
    if isinstance(operation, Barrier):
        return
    kind = Kind(operation.kind)
    step = step_bytes(kind, ranks, item_bytes)
    if operation.size_bytes % step:
        nearest = max(1, round(operation.size_bytes / step)) * step
        what = "ranks * bytes of the dtype" if kind.traits.splits else "the bytes of the dtype"
        yield Problem(
            (*key, "size"),
            str(operation.size_bytes),
            f"expected a multiple of {what} = {step}, such as {nearest}",
        )
    if isinstance(operation, (RootedCollective, SendRecv, Incast)) and operation.root >= ranks:
        yield Problem((*key, "root"), str(operation.root), f"expected a rank from 0 to {ranks - 1}")
    if isinstance(operation, Incast | Permutation) and ranks == 1:
        yield Problem((*key, "kind"), kind, "expected at least 2 ranks: a rank sends to others")
        return
    match operation:
        case CollectiveOperation() | RootedCollective():
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


CHECKS = (
    nccl_problems,
    class_problems,
    aggregation_problems,
    workload_problems,
    program_problems,
    fall_back_problems,
    unused_transport,
)
"""Every check of this room."""

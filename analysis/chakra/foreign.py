"""Traces as other programs write them, made into what can be run; and notes of what that changes.

Chakra's converter of PyTorch's traces names the caller of each operator in `ctrl_deps`, also where
it has left that caller out; Chakra's feeder reads `data_deps` alone. Older versions of the
converter give the host's side of a collective the type COMM_COLL, too, and no `comm_type`.
Sources: mlcommons/chakra, src/converter/pytorch_converter.py, src/feeder/et_feeder.cpp.
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from analysis.chakra.graph import unpriced
from analysis.chakra.schema import NodeType
from analysis.chakra.trace import Trace, TraceNode

_RANKS_NAMED = 3
_PROCESS_GROUPS = "process_group:init"


def as_feeder_reads(trace: Trace) -> tuple[Trace, tuple[str, ...]]:
    """The trace with the dependencies that Chakra's feeder follows where some of the others lead
    nowhere, and with the host's side of collectives as computation; and notes of that."""
    notes = []
    nodes = trace.nodes
    known = {node.id for node in nodes}
    dangling = sum(parent not in known for node in nodes for parent in node.ctrl_deps)
    if dangling:
        nodes = tuple(replace(node, ctrl_deps=()) for node in nodes)
        notes.append(
            f"{dangling} of its ctrl_deps name nodes that are not there, as Chakra's converter "
            "leaves callers out: data_deps alone are followed, as by Chakra's feeder"
        )
    launches = {node.id for node in nodes if _is_launch(node)}
    if launches:
        nodes = tuple(
            replace(node, type=NodeType.COMP) if node.id in launches else node for node in nodes
        )
        notes.append(
            f"{len(launches)} nodes of type COMM_COLL on the host have no comm_type: they start "
            "collectives, and take their duration as computation"
        )
    return replace(trace, nodes=nodes), tuple(notes)


def not_as_they_say(trace: Trace, device: str) -> tuple[str, ...]:
    """The nodes of a trace that a replay takes for something else: those that `device` was to
    time."""
    notes = []
    timed = [node for node in trace.nodes if unpriced(node)]
    if timed:
        how = "take no time" if device == "none" else f"take what the roofline of {device} says"
        notes.append(f"{len(timed)} computations with num_ops have no duration, and {how}")
    return tuple(notes)


def groups_of_pytorch(trace: Trace) -> dict[str, tuple[int, ...]]:
    """The process groups that PyTorch lists in a metadata node of its own, by name; one of all
    ranks has no ranks there, and none here. Raises ValueError."""
    found: dict[str, tuple[int, ...]] = {}
    for node in trace.nodes:
        if node.type != NodeType.METADATA or _PROCESS_GROUPS not in node.name:
            continue
        if node.inputs is None:
            continue
        try:
            (text,) = literal_eval(node.inputs.values)
            for group in json.loads(text):
                found[str(group["pg_name"])] = tuple(int(rank) for rank in group["ranks"])
        except (ValueError, SyntaxError, TypeError, KeyError) as error:
            raise ValueError(
                f"node {node.id} ({node.name}): inputs are no list of process groups: {error}"
            ) from None
    return found


def by_ranks(notes: Iterable[tuple[int, str]], ranks: int) -> tuple[str, ...]:
    """Notes on ranks' traces, each once with the ranks that it is about."""
    about: dict[str, list[int]] = defaultdict(list)
    for rank, note in notes:
        about[note].append(rank)
    return tuple(f"{_named(found, ranks)}: {note}" for note, found in about.items())


def _named(found: list[int], ranks: int) -> str:
    if len(found) == ranks > 1:
        return "all ranks"
    named = ", ".join(map(str, found[:_RANKS_NAMED]))
    more = f" and {len(found) - _RANKS_NAMED} others" if len(found) > _RANKS_NAMED else ""
    return f"rank{'s' if len(found) > 1 else ''} {named}{more}"


def _is_launch(node: TraceNode) -> bool:
    on_host = bool(node.attribute("is_cpu_op"))
    return node.type == NodeType.COMM_COLL and on_host and node.attribute("comm_type") is None

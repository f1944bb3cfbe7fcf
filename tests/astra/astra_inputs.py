"""ASTRA-sim input sets for the tests, from short descriptions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.chakra.codec import write_trace
from analysis.chakra.trace import Attribute, Trace, TraceNode

COLLECTIVE_NAMES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
_ON_GPU = Attribute("is_cpu_op", "bool_val", False)
_KINDS = {bool: "bool_val", int: "int64_val", str: "string_val", list: "bool_list"}


def node(description: Mapping[str, Any]) -> TraceNode:
    """A node from {"id", "type", "deps", "micros", and its attributes}."""
    attributes = tuple(
        Attribute(name, _KINDS[type(value)], tuple(value) if isinstance(value, list) else value)
        for name, value in description.items()
        if name not in ("id", "type", "deps", "micros")
    )
    return TraceNode(
        id=description["id"],
        type=description["type"],
        data_deps=tuple(description.get("deps", ())),
        duration_micros=description.get("micros", 0),
        attributes=(*attributes, *(() if "is_cpu_op" in description else (_ON_GPU,))),
    )


def system(algorithms: Sequence[str], **keys: Any) -> dict[str, Any]:
    """A system file that runs every collective by the given algorithms, one per dimension."""
    return {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "local-mem-bw": 1600,
        **{f"{name}-implementation": list(algorithms) for name in COLLECTIVE_NAMES},
        **keys,
    }


def write_inputs(
    folder: Path,
    graphs: Sequence[Sequence[Mapping[str, Any]]],
    system_document: Mapping[str, Any],
    network: Mapping[str, Sequence[Any]],
    groups: Mapping[str, Sequence[int]] | None = None,
    memory: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Write a complete input set; returns the options that name it."""
    for rank, graph in enumerate(graphs):
        trace = Trace(tuple(node(description) for description in graph))
        write_trace(folder / f"w.{rank}.et", trace)
    (folder / "system.json").write_text(json.dumps(system_document))
    (folder / "network.yml").write_text(
        "".join(f"{key}: [{', '.join(map(str, values))}]\n" for key, values in network.items())
    )
    memory = memory or {"memory-type": "NO_MEMORY_EXPANSION"}
    (folder / "memory.json").write_text(json.dumps(memory))
    options = {
        "--workload-configuration": str(folder / "w"),
        "--system-configuration": str(folder / "system.json"),
        "--network-configuration": str(folder / "network.yml"),
        "--remote-memory-configuration": str(folder / "memory.json"),
    }
    if groups:
        (folder / "groups.json").write_text(json.dumps(groups))
        options["--comm-group-configuration"] = str(folder / "groups.json")
    return options

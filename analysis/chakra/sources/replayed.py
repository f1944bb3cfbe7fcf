"""The traces of the workload `chakra`: the part that `topologies.spec.workloads` names."""

from __future__ import annotations

from pathlib import Path

from analysis.chakra.graph import Graph
from analysis.chakra.sources.read import TraceSet, read_workload
from topologies.spec.spec import Spec
from topologies.spec.workload_section import ChakraWorkload


def graphs(spec: Spec) -> list[Graph]:
    """Every rank's graph, as its trace has it. Raises ChakraError, OSError."""
    return list(traces_of(spec).graphs)


def traces_of(spec: Spec) -> TraceSet:
    """The traces, and what is to be said of them. Raises ChakraError, OSError."""
    workload = spec.workload
    assert isinstance(workload, ChakraWorkload)
    groups = None if workload.groups is None else Path(workload.groups)
    return read_workload(Path(workload.path), spec.compute, groups, workload.memory)

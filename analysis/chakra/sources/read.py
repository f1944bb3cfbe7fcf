"""Traces of any accepted origin: Chakra's own files, and PyTorch's observer's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from analysis.chakra.check import import_trace
from analysis.chakra.errors import ChakraError
from analysis.chakra.files import read_graphs
from analysis.chakra.graph import Graph, Groups, from_trace
from analysis.chakra.sources.pytorch import read_observer


def read_source(path: Path, compute_ns: Callable[[int, int], int]) -> tuple[list[Graph], bool]:
    """The graphs of a file, or of all `PATH.RANK.et` or `PATH.RANK.json`; and whether these are
    all ranks' (a file is one rank's of several).

    `compute_ns(flops, bytes)` times the operators of PyTorch's traces, which have no durations.
    Raises ChakraError naming the file and, where there is one, the offset.
    """
    if path.is_file():
        if path.suffix == ".json":
            return [read_observer(path, compute_ns)], False
        trace = import_trace(path)
        ranks = any(attribute.name == "world_size" for attribute in trace.attributes)
        try:
            return [from_trace(trace, None if ranks else Groups(1))], False
        except ValueError as error:
            raise ChakraError(path, None, str(error)) from None
    observed = _observed(path)
    if observed and not list(path.parent.glob(f"{path.name}.*.et")):
        missing = sorted(set(range(max(observed) + 1)) - set(observed))
        if missing:
            raise ChakraError(path, None, f"no file for rank {missing[0]} of 0 to {max(observed)}")
        return [read_observer(observed[rank], compute_ns) for rank in sorted(observed)], True
    return read_graphs(path), True


def _observed(prefix: Path) -> dict[int, Path]:
    found = {}
    for path in prefix.parent.glob(f"{prefix.name}.*.json"):
        rank = path.name[len(prefix.name) + 1 : -len(".json")]
        if rank.isdecimal():
            found[int(rank)] = path
    return found

"""Reports of NVIDIA's Nsight Systems (`nsys export --type sqlite`) as graphs, of runs on NCCL.

`nsys_report.py` reads a file, and `recorded.py` makes a graph of what a device did. This module
finds the ranks of the processes of all nodes, and what each call says to whom.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import ComputeNode, Graph
from analysis.chakra.sources.nsys_report import (
    KINDS,
    MESSAGES,
    MOST_NS,
    RANGES,
    NsysReport,
    Process,
    ProcessRecord,
    Together,
)
from analysis.chakra.sources.recorded import Communication, Kernel, Message, RecordedDevice
from collectives.call import CollectiveCall, CollectiveError
from collectives.kinds import Kind

MAGIC = b"SQLite format 3\0"

_OF_ONE_RANK = (Kind.ALL_GATHER, Kind.REDUCE_SCATTER)
"""Kinds whose data_size is the part of one rank."""


def nsys_reports(path: Path) -> list[Path]:
    """The exported reports that a path names: itself, those of a directory, or PATH*.sqlite."""
    if path.is_file():
        with path.open("rb") as file:
            return [path] if file.read(len(MAGIC)) == MAGIC else []
    if path.is_dir():
        return sorted(path.glob("*.sqlite"))
    return sorted(each for each in path.parent.glob("*.sqlite") if each.name.startswith(path.name))


def read_nsys(paths: Sequence[Path]) -> tuple[tuple[Graph, ...], tuple[str, ...]]:
    """Every rank's graph, and notes. `paths` are the reports of all nodes. Raises ChakraError
    naming file, table and row."""
    processes: dict[Process, ProcessRecord] = {}
    members: dict[str, dict[int, Process]] = {}
    sizes: dict[str, int] = {}
    notes: list[str] = []
    for path in paths:
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as opened:
                opened.text_factory = lambda data: data.decode("utf-8", "replace")
                report = NsysReport(path, opened, members, sizes)
                processes |= report.read()
                notes += report.notes
        except (sqlite3.Error, UnicodeDecodeError) as error:  # its messages quote a broken schema
            raise ChakraError(path, None, f"SQLite: {error}") from None
    rank_of = _ranks(paths[0], processes, members, sizes)
    by_rank = sorted(rank_of, key=lambda each: rank_of[each])
    graphs = tuple(
        _graph(process, processes.get(process, ProcessRecord()), rank_of, members)
        for process in by_rank
    )
    return graphs, tuple(dict.fromkeys(notes))


def _ranks(
    path: Path,
    processes: Mapping[Process, ProcessRecord],
    members: Mapping[str, Mapping[int, Process]],
    sizes: Mapping[str, int],
) -> dict[Process, int]:
    """The rank of each process in the communicator of all."""

    def fail(what: str) -> NoReturn:
        raise ChakraError(path, None, f"table {RANGES}: {what}")

    if not members:
        fail("no range says `commHash H commId C rank R nranks N pid P`")
    for shared, known in members.items():
        if len(known) != sizes[shared]:
            fail(
                f"communicator {shared} of {sizes[shared]} ranks has {len(known)} in the reports: "
                "give those of all nodes, as a folder or as the PREFIX of PREFIX*.sqlite"
            )
    whole = max(members.values(), key=len)
    rank_of = {process: rank for rank, process in whole.items()}
    everyone = {*processes, *(each for known in members.values() for each in known.values())}
    if len(rank_of) != len(whole) or everyone - rank_of.keys():
        fail(f"{len(everyone)} processes, and no communicator of all says how they are numbered")
    return rank_of


def _graph(
    process: Process,
    said: ProcessRecord,
    rank_of: Mapping[Process, int],
    members: Mapping[str, Mapping[int, Process]],
) -> Graph:
    """The graph of a process."""
    device = RecordedDevice()
    device.compute = [each.kernel for each in said.work if not each.of_nccl]
    for one in said.together:
        parts = tuple(_parts(process, said, one, rank_of, members))
        first = min(one.kernels, key=lambda kernel: kernel.start_ns)
        kernel = Kernel(
            f"nccl{one.calls[0].name}",
            first.stream,
            first.launch_ns,
            first.start_ns,
            max(kernel.end_ns for kernel in one.kernels),
        )
        if parts:
            device.communication.append(Communication(kernel, parts))
        else:
            device.compute.append(kernel)
    own = sorted((one.start_ns, one.end_ns) for one in said.together)
    device.waits_ns = [at for at in said.waits_ns if not _inside(at, own)]
    return device.graph() or (ComputeNode(id=0, name="nothing"),)


def _parts(
    process: Process,
    said: ProcessRecord,
    one: Together,
    rank_of: Mapping[Process, int],
    members: Mapping[str, Mapping[int, Process]],
) -> Iterator[CollectiveCall | Message]:
    """The calls of a launch; a message to itself is a copy."""
    for call in one.calls:
        known = members[said.communicators[call.communicator]]
        ranks = tuple(rank_of[known[place]] for place in range(len(known)))
        if call.name in MESSAGES:
            peer = ranks[call.number or 0]
            if peer != rank_of[process]:
                yield Message(call.name == "Send", peer, call.size_bytes)
            continue
        kind = KINDS[call.name]
        size_bytes = call.size_bytes * (len(ranks) if kind in _OF_ONE_RANK else 1)
        try:
            yield CollectiveCall(kind, size_bytes, ranks, call.item_bytes, call.number or 0)
        except CollectiveError as error:
            raise ChakraError(
                process[0], None, f"table {RANGES}, row {call.row}: {error}"
            ) from None


def _inside(at_ns: int, spans: Sequence[tuple[int, int]]) -> bool:
    place = bisect_right(spans, (at_ns, MOST_NS)) - 1
    return place >= 0 and spans[place][1] >= at_ns

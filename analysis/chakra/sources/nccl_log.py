"""NCCL's debug logs as graphs: `NCCL_DEBUG=INFO`, `NCCL_DEBUG_SUBSYS=INIT,COLL`.

    node1:71:71 [0] NCCL INFO ncclCommInitRank comm 0x55a rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId
        1000 commId 0x1f2 - Init COMPLETE
    node1:71:71 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f1 recvbuff 0x7f1 count 1048
        datatype 7 op 0 root 0 comm 0x55a [nranks=2] stream 0x55b

(each one line). A log has the lines of all ranks, in any mixture: a line names its host, process
and device. Calls on one stream come one after another; sends and receives of one operation begin
together. The log has no times and no computation: calls follow one another at once.

The rank of a process is that in the communicator of all processes, which INIT lines tell. Without
them there must be no other communicator, and ranks are numbered by their first lines.
Sources: NVIDIA/nccl, src/enqueue.cc (ncclEnqueueCheck), src/init.cc (ncclCommInitRankFunc),
src/debug.cc (the beginning of a line), src/nccl.h.in (ncclDataType_t, and what counts count).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from analysis.chakra.codec import read_bytes
from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    Graph,
    GraphNode,
    ReceiveNode,
    SendNode,
)
from collectives.call import CollectiveCall, CollectiveError
from collectives.kinds import Kind
from topologies.spec.workload_types import MAX_SIZE_BYTES

_LINE = re.compile(
    r"(?P<host>[^\s:]+):(?P<process>\d+):\d+ \[(?P<device>\d+)\] NCCL INFO (?P<rest>.*)"
)
_CALL = re.compile(
    r"(?P<name>\w+): opCount (?P<number>[0-9a-f]+) sendbuff \S+ recvbuff \S+ count (?P<count>\d+) "
    r"datatype (?P<type>\d+) op (?P<op>\d+) root (?P<root>\d+) comm (?P<comm>\S+) "
    r"\[nranks=(?P<ranks>\d+)\] stream (?P<stream>\S+)"
)
_BEGINNING_OF_CALL = re.compile(r"(\w+): opCount ")
_INIT = re.compile(
    r"\w+ comm (?P<comm>\S+) rank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+) .*- Init (START|COMPLETE)"
)
_SHARED_ID = re.compile(r" commId (\S+)")
_SPLIT = re.compile(r" parent (\S+) splitCount (\d+) color (-?\d+)")
_ITEM_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""The element's bytes by NCCL's number of its type: ncclInt8, Uint8, Int32, Uint32, Int64, Uint64,
Float16, Float32, Float64, Bfloat16 and two of 8 bits."""
_KINDS = {
    "AllReduce": Kind.ALL_REDUCE,
    "AllGather": Kind.ALL_GATHER,
    "ReduceScatter": Kind.REDUCE_SCATTER,
    "Broadcast": Kind.BROADCAST,
    "Reduce": Kind.REDUCE,
    "AlltoAll": Kind.ALL_TO_ALL,
    "AllToAll": Kind.ALL_TO_ALL,
    "Gather": Kind.GATHER,
    "Scatter": Kind.SCATTER,
}
_MESSAGES = ("Send", "Recv")
_OF_ONE_RANK = (
    Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL, Kind.GATHER, Kind.SCATTER,
)  # fmt: skip
"""Kinds whose count is the part of one rank."""

Device = tuple[str, int, int]
"""A rank, as a log names it: host, process, device."""
_Identity = tuple[object, ...]
"""A communicator, the same on all its ranks."""


@dataclass(frozen=True, slots=True)
class _Call:
    line: int
    name: str
    number: int
    elements: int
    item_bytes: int
    root: int
    communicator: _Identity
    stream: str


@dataclass(slots=True)
class _Log:
    """The members and sizes of communicators as far as they are known, and the calls of each
    rank."""

    members: dict[_Identity, dict[int, Device]] = field(default_factory=dict)
    sizes: dict[_Identity, int] = field(default_factory=dict)
    calls: dict[Device, list[_Call]] = field(default_factory=dict)


def read_nccl_log(path: Path) -> tuple[tuple[Graph, ...], tuple[str, ...]]:
    """Every rank's graph, and notes. Raises ChakraError naming the line and the word."""
    return _Reader(path).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = _Log()
        self._named: dict[tuple[Device, str], tuple[_Identity, int]] = {}
        self._unnamed: set[Device] = set()

    def read(self) -> tuple[tuple[Graph, ...], tuple[str, ...]]:
        for line, device, rest in self._lines():
            if init := _INIT.search(rest):
                self._init(device, init, rest)
            elif _BEGINNING_OF_CALL.match(rest):
                self._call(line, device, rest)
        log = self._log
        if not log.calls:
            self._fail(None, "has no lines of calls: set NCCL_DEBUG_SUBSYS=INIT,COLL")
        devices = {each for known in log.members.values() for each in known.values()}
        devices |= log.calls.keys()
        rank_of = self._ranks(devices)
        for known in log.members.values():
            for place in list(known):
                if known[place] not in rank_of:
                    self._fail(None, f"{_text(known[place])} is in no communicator of all")
        graphs = tuple(
            tuple(self._graph(device, rank_of))
            for device in sorted(rank_of, key=lambda each: rank_of[each])
        )
        return graphs, tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        yield "a log has no times and no computation: calls on a stream follow one another at once"
        if self._unnamed:
            yield (
                "no lines of INIT say which rank is which: ranks are numbered by their first "
                "lines, and roots and peers are numbers of these (NCCL_DEBUG_SUBSYS=INIT,COLL)"
            )

    def _lines(self) -> Iterator[tuple[int, Device, str]]:
        text = read_bytes(self._path).decode("utf-8", "replace")
        for number, line in enumerate(text.split("\n"), 1):
            found = _LINE.search(line)
            if found is not None:
                device = found["host"], _number(found["process"]), _number(found["device"])
                yield number, device, found["rest"].rstrip()

    def _init(self, device: Device, found: re.Match[str], rest: str) -> None:
        identity: _Identity | None = None
        if shared := _SHARED_ID.search(rest):
            identity = ("id", shared[1])
        elif split := _SPLIT.search(rest):
            parent, _ = self._named.get((device, split[1]), (None, 0))
            identity = None if parent is None else ("split", parent, split[2], split[3])
        ranks, rank = _number(found["ranks"]), _number(found["rank"])
        if identity is None:
            identity = ("all", ranks)
        self._named[device, found["comm"]] = identity, rank
        self._log.members.setdefault(identity, {})[rank] = device
        self._log.sizes[identity] = ranks

    def _call(self, line: int, device: Device, rest: str) -> None:
        found = _CALL.match(rest)
        if found is None:
            self._fail(line, f"found {rest[:60]!r}, expected `NAME: opCount ... stream ...`")
        name, ranks = found["name"], _number(found["ranks"])
        if name not in _KINDS and name not in _MESSAGES:
            allowed = ", ".join([*_KINDS, *_MESSAGES])
            self._fail(line, f"found the call {name}, allowed {allowed}")
        kind_of_item = _number(found["type"])
        if kind_of_item >= len(_ITEM_BYTES):
            self._fail(line, f"datatype: found {kind_of_item}, allowed 0 to {len(_ITEM_BYTES) - 1}")
        known = self._named.get((device, found["comm"]))
        if known is None:
            identity: _Identity = ("all", ranks)
            own = self._log.members.setdefault(identity, {})
            if device not in own.values():
                own[len(own)] = device
            self._log.sizes[identity] = ranks
            self._unnamed.add(device)
            self._named[device, found["comm"]] = identity, len(own) - 1
        else:
            identity = known[0]
        if self._log.sizes[identity] != ranks:
            self._fail(line, f"nranks: found {ranks}, and {self._log.sizes[identity]} before")
        own_calls = self._log.calls.setdefault(device, [])
        elements, item_bytes = _number(found["count"]), _ITEM_BYTES[kind_of_item]
        if elements * item_bytes * ranks > MAX_SIZE_BYTES * ranks:
            self._fail(line, f"count: found {elements}, more than {MAX_SIZE_BYTES} bytes")
        if elements:
            own_calls.append(
                _Call(
                    line,
                    name,
                    int(found["number"][:15], 16),
                    elements,
                    item_bytes,
                    _number(found["root"]),
                    identity,
                    found["stream"],
                )
            )

    def _ranks(self, devices: set[Device]) -> Mapping[Device, int]:
        """The rank of each process and device in the communicator of all."""
        log = self._log
        for identity, known in log.members.items():
            if log.sizes[identity] != len(known):
                self._fail(
                    None,
                    f"a communicator of {log.sizes[identity]} ranks has {len(known)} in the log: "
                    "give the lines of all ranks in one file, with NCCL_DEBUG_SUBSYS=INIT,COLL",
                )
            if sorted(known) != list(range(len(known))):
                self._fail(None, f"a communicator has ranks {sorted(known)[:8]}")
        whole = max(log.members.values(), key=len)
        if len(whole) != len(devices):
            self._fail(
                None,
                f"{len(devices)} ranks, and no communicator of all says how they are numbered",
            )
        return {device: rank for rank, device in whole.items()}

    def _graph(self, device: Device, rank_of: Mapping[Device, int]) -> Iterator[GraphNode]:
        last: dict[str, tuple[int, ...]] = defaultdict(tuple)
        together: dict[str, tuple[object, tuple[int, ...]]] = {}
        tags = {identity: tag for tag, identity in enumerate(self._log.members)}
        id = 0
        for call in self._log.calls.get(device, []):
            members = self._log.members[call.communicator]
            ranks = tuple(rank_of[members[place]] for place in range(len(members)))
            if call.root >= len(ranks):
                self._fail(call.line, f"root: found {call.root}, allowed 0 to {len(ranks) - 1}")
            message = call.name in _MESSAGES
            if len(ranks) == 1 or (message and ranks[call.root] == rank_of[device]):
                continue  # copies within a rank
            stream = call.stream
            operation = (call.communicator, call.number) if message else None
            met = together.get(stream)
            if met is not None and operation is not None and met[0] == operation:
                after, last[stream] = met[1], (*last[stream], id)
            else:
                after, last[stream] = last[stream], (id,)
            together[stream] = operation, after
            yield self._node(id, call, after, ranks, tags[call.communicator])
            id += 1
        if not id:
            yield ComputeNode(id=0, name="nothing")

    def _node(
        self, id: int, call: _Call, after: tuple[int, ...], ranks: tuple[int, ...], tag: int
    ) -> GraphNode:
        name = f"{call.name}.{call.line}"
        size_bytes = call.elements * call.item_bytes
        if call.name in _MESSAGES:
            kind_of_node = SendNode if call.name == "Send" else ReceiveNode
            return kind_of_node(
                id=id, name=name, after=after, peer=ranks[call.root], size_bytes=size_bytes, tag=tag
            )
        kind = _KINDS[call.name]
        if kind in _OF_ONE_RANK:
            size_bytes *= len(ranks)
        try:
            made = CollectiveCall(kind, size_bytes, ranks, call.item_bytes, call.root)
        except CollectiveError as error:
            self._fail(call.line, str(error))
        return CollectiveNode(id=id, name=name, after=after, call=made)

    def _fail(self, line: int | None, what: str) -> NoReturn:
        raise ChakraError(self._path, None, what if line is None else f"line {line}: {what}")


def _number(word: str) -> int:
    return int(word[:18])


def _text(device: Device) -> str:
    host, process, number = device
    return f"{host}:{process} [{number}]"

"""LogGOPSim's binary GOAL files, which txt2bin makes of texts, as graphs.

Little-endian, without padding. A file: magic number 4223 (64 bits), how many ranks (32), the most
CPUs and NICs (8 each), and by rank where its schedule begins and ends (64 each), counted from
behind the magic number. A schedule: how many operations and how many of them wait for nothing (32
each), the latter's numbers; by operation what it waits for, how many (32), its kind (8), peer (32),
size (64), tag (32), CPU and NIC (8 each), then how many wait for its end, from where in the
appendix, how many wait for its beginning, and from where (32 each); at last the appendix, numbers
of operations (32 each).
Source: spcl/LogGOPSim, src/LogGOPSim/Parser.hpp (serialize_mmap); spcl/atlahs has the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from analysis.chakra.codec import read_bytes
from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import Graph
from analysis.chakra.sources.goal import GoalOperation, goal_graph, goal_notes

MAGIC = 4223
_MAGIC_OF_USED = 2342
_BASE = 8
_HEADER = struct.Struct("<IBB")
_PLACE = struct.Struct("<QQ")
_COUNTS = struct.Struct("<II")
_OPERATION = struct.Struct("<IBIQIBBIIII")
_KINDS = {1: "send", 2: "recv", 3: "calc"}
_NUMBERS = {name: number for number, name in _KINDS.items()}
_ANY = 0xFFFFFFFF


def is_goal_binary(data: bytes) -> bool:
    """Whether a file begins as one, used up or not."""
    return len(data) >= _BASE and struct.unpack_from("<Q", data)[0] in (MAGIC, _MAGIC_OF_USED)


def read_goal_binary(path: Path) -> tuple[tuple[Graph, ...], tuple[tuple[int, str], ...]]:
    """Every rank's graph, and notes, each with its rank. Raises ChakraError naming the file, the
    rank and the operation."""
    return _Reader(path, read_bytes(path)).read()


def goal_binary(schedules: Sequence[Sequence[GoalOperation]]) -> bytes:
    """The file of schedules; operations wait by their places."""
    cpus = [operation.options.get("cpu", 0) for each in schedules for operation in each]
    bodies = [_schedule(operations) for operations in schedules]
    place = _HEADER.size + _PLACE.size * len(bodies)
    table = b""
    for body in bodies:
        table += _PLACE.pack(place, place + len(body))
        place += len(body)
    header = struct.pack("<Q", MAGIC) + _HEADER.pack(len(bodies), max(cpus, default=0), 0)
    return header + table + b"".join(bodies)


def _schedule(operations: Sequence[GoalOperation]) -> bytes:
    followers: list[tuple[list[int], list[int]]] = [([], []) for _ in operations]
    waits = [0] * len(operations)
    for number, operation in enumerate(operations):
        for which, others in enumerate((operation.after, operation.with_)):
            for other in others:
                followers[other][which].append(number)
                waits[number] += 1
    roots = [number for number, count in enumerate(waits) if not count]
    body = _COUNTS.pack(len(operations), len(roots)) + struct.pack(f"<{len(roots)}I", *roots)
    appendix: list[int] = []
    for operation, count, (ends, begins) in zip(operations, waits, followers, strict=True):
        first = len(appendix)
        body += _OPERATION.pack(
            count,
            _NUMBERS[operation.kind],
            max(operation.peer, 0),
            operation.size,
            operation.options.get("tag", 0),
            operation.options.get("cpu", 0),
            operation.options.get("nic", 0),
            len(ends),
            first,
            len(begins),
            first + len(ends),
        )
        appendix += [*ends, *begins]
    return body + struct.pack(f"<{len(appendix)}I", *appendix)


class _Reader:
    def __init__(self, path: Path, data: bytes) -> None:
        self._path = path
        self._data = data

    def read(self) -> tuple[tuple[Graph, ...], tuple[tuple[int, str], ...]]:
        (magic,) = self._unpack(struct.Struct("<Q"), 0, "the magic number")
        if magic != MAGIC:
            used = magic == _MAGIC_OF_USED
            self._fail(0, "was used up by LogGOPSim (--save-mem)" if used else "is no GOAL file")
        ranks, _, _ = self._unpack(_HEADER, _BASE, "the number of ranks")
        table = _BASE + _HEADER.size
        if ranks * _PLACE.size > len(self._data) - table:
            self._fail(_BASE, f"num_ranks: found {ranks}, and the file has no table for so many")
        graphs, notes = [], []
        for rank in range(ranks):
            at = table + rank * _PLACE.size
            start, end = self._unpack(_PLACE, at, f"rank {rank}'s place")
            if not table - _BASE <= start <= end <= len(self._data) - _BASE:
                self._fail(at, f"rank {rank}: found bytes {start} to {end}, beyond the file")
            operations = list(self._operations(rank, ranks, _BASE + start, _BASE + end))
            graphs.append(goal_graph(operations, lambda line, what: self._fail(None, what)))
            notes += [(rank, note) for note in goal_notes(operations)]
        return tuple(graphs), tuple(notes)

    def _operations(self, rank: int, ranks: int, start: int, end: int) -> Iterator[GoalOperation]:
        count, roots = self._unpack(_COUNTS, start, f"rank {rank}'s counts")
        first = start + _COUNTS.size + 4 * roots
        appendix = first + _OPERATION.size * count
        if appendix > end:
            self._fail(start, f"rank {rank}: {count} operations do not fit into its schedule")
        after: list[list[int]] = [[] for _ in range(count)]
        with_: list[list[int]] = [[] for _ in range(count)]
        read = []
        for number in range(count):
            at = first + _OPERATION.size * number
            row = self._unpack(_OPERATION, at, f"rank {rank}'s operation {number}")
            for known, many, begin in ((after, row[7], row[8]), (with_, row[9], row[10])):
                if many and appendix + 4 * (begin + many) > end:
                    self._fail(at, f"rank {rank}: operation {number}: its followers are not there")
                for place in range(begin, begin + many):
                    (other,) = struct.unpack_from("<I", self._data, appendix + 4 * place)
                    if other >= count:
                        self._fail(
                            at,
                            f"rank {rank}: operation {number}: found follower {other}, allowed 0 "
                            f"to {count - 1}",
                        )
                    known[other].append(number)
            read.append((at, row))
        for number, (at, row) in enumerate(read):
            where = f"rank {rank}: operation {number}"
            _, kind, peer, size, tag, cpu, nic = row[:7]
            if kind not in _KINDS:
                self._fail(at, f"{where}: type: found {kind}, allowed 1 to 3")
            if kind != _NUMBERS["calc"]:
                if peer == _ANY or tag == _ANY:
                    self._fail(at, f"{where}: receives from any rank, or any tag: not replayed")
                if peer >= ranks:
                    self._fail(at, f"{where}: peer: found {peer}, allowed 0 to {ranks - 1}")
            if size > 1 << 62:
                self._fail(at, f"{where}: size: found {size}, allowed to {1 << 62}")
            options = {"cpu": cpu, "nic": nic} | ({"tag": tag} if kind != 3 else {})
            yield GoalOperation(
                number + 1, f"op{number}", _KINDS[kind], size, peer, options,
                after[number], with_[number],
            )  # fmt: skip

    def _unpack(self, form: struct.Struct, at: int, what: str) -> tuple[int, ...]:
        if at + form.size > len(self._data):
            self._fail(at, f"ends before {what}")
        return form.unpack_from(self._data, at)

    def _fail(self, at: int | None, what: str) -> NoReturn:
        raise ChakraError(self._path, at, what)

"""AICB's workloads of communication (CSV), as graphs.

    [rank0 ~ rank127]
    comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,...
    CommType.all_reduce,CommGroup.tp_group,2,16777216,forward.MegatronEmbedding,None,None,,None,...
    CommType.computation,None,None,"((4096, 1, 4096), (4096, 6144))",forward.q,None,None,,123000,...

All ranks do what the rows say, one after another, as AICB's own program does with them. Groups are
Megatron's, by the sizes in the rows. Sizes are bytes of the whole array, of elements of 16 bits; a
computation has a time in nanoseconds, or the shapes of a product. An `epoch_end` ends an epoch, and
the last one that has rows is read: those before are set-up, or the same again. Messages of a
pipeline, which a file tells of one rank of each stage, are refused.
Source: aliyun/aicb, workload_applyer.py, utils/utils.py (CommType, CommGroup).
"""

from __future__ import annotations

import csv
import math
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from analysis.chakra.codec import read_bytes
from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, GraphNode, Pricing
from analysis.chakra.limits import LONGEST_NS, MOST_NODES
from analysis.chakra.sources.simai import Degrees
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from topologies.spec.workload_types import MAX_SIZE_BYTES

_KINDS = {
    "all_reduce": Kind.ALL_REDUCE,
    "all_gather": Kind.ALL_GATHER,
    "all_gather_into_tensor": Kind.ALL_GATHER,
    "reduce_scatter": Kind.REDUCE_SCATTER,
    "reduce_scatter_tensor": Kind.REDUCE_SCATTER,
    "all_to_all": Kind.ALL_TO_ALL,
    "broadcast": Kind.BROADCAST,
    "barrier": Kind.BARRIER,
}
_GROUPS = {"tp_group": "TP", "dp_group": "DP", "ep_group": "EP", "ep_dp_group": "DP_EP"}
_COLUMNS = ("comm_type", "comm_group", "comm_group_size", "msg_size", "stage", "_elapsed_time")
_ITEM_BYTES = 2
_MOST_RANKS = 1 << 16

_Row = tuple[int, Mapping[str, str]]


def read_aicb(path: Path, price: Pricing) -> tuple[tuple[Graph, ...], tuple[str, ...]]:
    """Every rank's graph of an epoch, and notes. `price` times products without a time. Raises
    ChakraError naming the line and the column."""
    return _Reader(path, price).read()


class _Reader:
    def __init__(self, path: Path, price: Pricing) -> None:
        self._path = path
        self._price = price
        self._untimed = 0

    def read(self) -> tuple[tuple[Graph, ...], tuple[str, ...]]:
        epochs: list[list[_Row]] = [[]]
        for row in self._rows():
            if _name(row[1]["comm_type"]) == "epoch_end":
                epochs.append([])
            else:
                epochs[-1].append(row)
        kept = [epoch for epoch in epochs if epoch]
        if not kept:
            self._fail(2, "found no rows")
        degrees = self._degrees(kept[-1])
        if degrees.ranks * len(kept[-1]) > MOST_NODES:
            self._fail(kept[-1][0][0], f"more than {MOST_NODES:,} nodes of {degrees.ranks} ranks")
        acts = [act for row in kept[-1] if (act := self._act(row, degrees)) is not None]
        graphs = tuple(tuple(_graph(acts, degrees, rank)) for rank in range(degrees.ranks))
        return graphs, tuple(self._notes(kept))

    def _notes(self, kept: Sequence[Sequence[_Row]]) -> Iterator[str]:
        if len(kept) > 1:
            rows = sum(len(epoch) for epoch in kept[:-1])
            yield f"{rows} rows of {len(kept) - 1} epochs before the last one are left out"
        if self._untimed:
            yield (
                f"{self._untimed} computations have shapes and no time: they take what the "
                "roofline of --device says"
            )

    def _rows(self) -> Iterator[_Row]:
        try:
            lines = read_bytes(self._path).decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise ChakraError(self._path, error.start, "is no text (UTF-8)") from None
        first = next((n for n, line in enumerate(lines[:2]) if line.startswith("comm_type,")), 0)
        names = lines[first].strip().split(",")
        lacking = [name for name in _COLUMNS if name not in names]
        if lacking:
            self._fail(
                first + 1,
                f"found no column {lacking[0]}: give a file that AICB wrote for a model, whose "
                "rows have the sizes of groups",
            )
        for number, line in enumerate(lines[first + 1 :], first + 2):
            if not line.strip():
                continue
            if line.startswith("["):
                self._fail(number, "found a second part: stages of a pipeline are not read")
            try:
                words = next(csv.reader([line.rstrip("\r")], strict=True))
            except (csv.Error, StopIteration):
                self._fail(number, "is no line of CSV")
            if len(words) < len(names):
                self._fail(number, f"found {len(words)} columns, expected {len(names)}")
            yield number, dict(zip(names, words, strict=False))

    def _degrees(self, rows: Sequence[_Row]) -> Degrees:
        """Degrees of parallelism by the sizes of groups."""
        sizes: dict[str, int] = {}
        for line, row in rows:
            kind, group = _name(row["comm_type"]), _name(row["comm_group"])
            if kind in ("computation", "barrier"):
                continue
            if kind not in _KINDS:
                allowed = ", ".join([*_KINDS, "computation", "epoch_end"])
                self._fail(line, f"comm_type: found {kind}, allowed {allowed}")
            if group not in _GROUPS:
                self._fail(line, f"comm_group: found {group}, allowed {', '.join(_GROUPS)}")
            size = self._number(line, row["comm_group_size"], "comm_group_size", _MOST_RANKS)
            if size < 1 or sizes.setdefault(group, size) != size:
                self._fail(line, f"comm_group_size: found {size}, and {sizes[group]} before")
        expert, spread = sizes.get("ep_group", 1), sizes.get("ep_dp_group", 1)
        tensor, data = sizes.get("tp_group", 1), sizes.get("dp_group", expert * spread)
        if data % expert or ("ep_dp_group" in sizes and data != expert * spread):
            self._fail(
                rows[0][0],
                f"{data} data-parallel ranks are not {expert} of experts times {spread}",
            )
        if tensor * data > _MOST_RANKS:
            self._fail(rows[0][0], f"found {tensor * data} ranks, allowed {_MOST_RANKS}")
        return Degrees(tensor * data, tensor, 1, expert)

    def _act(self, row: _Row, degrees: Degrees) -> tuple[str, int, Kind | None, int, str] | None:
        """A name, a duration, a collective's kind, size and group; None for what has no bytes."""
        line, about = row
        kind, stage = _name(about["comm_type"]), about["stage"] or "row"
        name = f"{stage}.{line}"
        if kind == "computation":
            return name, self._duration_ns(line, about), None, 0, ""
        if kind == "barrier":
            return name, 0, Kind.BARRIER, 0, ""
        size_bytes = self._number(line, about["msg_size"], "msg_size", MAX_SIZE_BYTES)
        group = _GROUPS[_name(about["comm_group"])]
        members = len(degrees.members(group, 0))
        if not size_bytes or members == 1:
            return None
        if _KINDS[kind] in (Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL):
            # AICB fills the array up to whole elements for each rank.
            size_bytes = -(-size_bytes // (_ITEM_BYTES * members)) * _ITEM_BYTES * members
        return name, 0, _KINDS[kind], size_bytes, group

    def _duration_ns(self, line: int, about: Mapping[str, str]) -> int:
        word = about["_elapsed_time"]
        if word not in ("None", ""):
            try:
                found = float(word)
                if 0 <= found <= LONGEST_NS:
                    return round(found)
            except ValueError:
                pass
            self._fail(line, f"_elapsed_time: found {word!r}, expected nanoseconds within a day")
        self._untimed += 1
        try:
            one, other = literal_eval(about["msg_size"])
            *batch, rows, inner = (_dimension(each) for each in one)
            columns = _dimension(other[-1])
        except (ValueError, SyntaxError, TypeError, IndexError, MemoryError, RecursionError):
            found_text = about["msg_size"][:40]
            self._fail(line, f"msg_size: found {found_text!r}, expected the shapes of a product")
        rows *= math.prod(batch)
        moved = _ITEM_BYTES * (rows * inner + inner * columns + rows * columns)
        return min(self._price(2 * rows * inner * columns, moved), LONGEST_NS)

    def _number(self, line: int, word: str, what: str, most: int) -> int:
        if not (word.isascii() and word.isdigit() and len(word) <= 18 and int(word) <= most):
            self._fail(line, f"{what}: found {word!r}, expected a whole number to {most}")
        return int(word)

    def _fail(self, line: int, what: str) -> NoReturn:
        raise ChakraError(self._path, None, f"line {line}: {what}")


def _graph(
    acts: Sequence[tuple[str, int, Kind | None, int, str]], degrees: Degrees, rank: int
) -> Iterator[GraphNode]:
    for id, (name, duration_ns, kind, size_bytes, group) in enumerate(acts):
        after = (id - 1,) if id else ()
        if kind is None:
            yield ComputeNode(id=id, name=name, after=after, duration_ns=duration_ns)
            continue
        ranks = degrees.members(group, rank) if group else tuple(range(degrees.ranks))
        call = CollectiveCall(kind, size_bytes, ranks, _ITEM_BYTES)
        yield CollectiveNode(id=id, name=name, after=after, call=call)
    if not acts:
        yield ComputeNode(id=0, name="nothing")


def _name(word: str) -> str:
    """A member of an enumeration, without the enumeration's name."""
    return word.strip().rpartition(".")[2]


def _dimension(value: object) -> int:
    if not isinstance(value, int) or not 0 < value < 1 << 32:
        raise ValueError
    return value

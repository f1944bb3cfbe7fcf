"""One report of NVIDIA's Nsight Systems, as SQLite: processes, calls, kernels.

ATLAHS records them of an NCCL whose NVTX ranges say what a call communicates:

    commHash 0x1f commId 0x2e rank 0 nranks 4 pid 71
    ncclAllReduce(): commHash 0x1f, stream 0x55b, data_size 4096, type_size 4, red_op 0, pid 71
    ncclGroupStart(): pid 71

A report has the processes of a node, each with one device. Tables that are read: NVTX_EVENTS (the
ranges), CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY and _MEMSET (work of devices),
CUPTI_ACTIVITY_KIND_RUNTIME (launches and waits of hosts), StringIds. A kernel of NCCL is that of
the call, or group of calls, in which its host launched it; in a report without launches kernels
and calls are paired in their order.

Sources: spcl/atlahs, goal_gen/ai/nccl_goal_generator (what is read of a report),
ZhiyiHu1999/nccl_nvtx_v2.20.5-1, src/collectives.cc, group.cc, init.cc (the texts of ranges, and
that data_size is the bytes of the call's count); Nsight Systems, SQLite schema reference (tables,
and globalTid, whose part above 24 bits is the process).
"""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from analysis.chakra.errors import ChakraError
from analysis.chakra.sources.recorded import HOST_WAITS, Kernel
from collectives.kinds import Kind
from topologies.spec.workload_types import MAX_SIZE_BYTES

RANGES = "NVTX_EVENTS"
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_LAUNCHES = "CUPTI_ACTIVITY_KIND_RUNTIME"
_COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_STRINGS = "StringIds"
_THREAD_BITS = 24
MOST_NS = 1 << 62

_COMMUNICATOR = re.compile(r"commHash (\S+) commId (\S+) rank (\d{1,9}) nranks (\d{1,9}) pid \d+")
_CALL = re.compile(
    r"nccl(?P<name>\w+)\(\): commHash (?P<hash>\S+), stream (?P<stream>\S+), "
    r"data_size (?P<bytes>\d{1,18}), type_size (?P<item>\d{1,9})(?:, red_op \d+)?"
    r"(?:, (?:root|receiver_rank|sender_rank) (?P<number>\d{1,9}))?, pid \d+"
)
_BEGINNING_OF_CALL = re.compile(r"nccl\w+\(\): commHash ")
_GROUP = re.compile(r"ncclGroup(Start|End)\(\): pid \d+")
_WINDOW = re.compile(r"nsys profiling (start|stopped), pid \d+")
KINDS = {
    "AllReduce": Kind.ALL_REDUCE,
    "AllGather": Kind.ALL_GATHER,
    "ReduceScatter": Kind.REDUCE_SCATTER,
    "Broadcast": Kind.BROADCAST,
    "Reduce": Kind.REDUCE,
}
MESSAGES = ("Send", "Recv")

Process = tuple[Path, int]
"""A rank, as a report names it."""


@dataclass(frozen=True, slots=True)
class Call:
    row: int
    start_ns: int
    end_ns: int
    thread: int
    name: str
    communicator: str
    size_bytes: int
    item_bytes: int
    number: int | None


@dataclass(slots=True)
class Together:
    """Calls that one launch carries out: a call, or those of a group."""

    thread: int
    start_ns: int
    end_ns: int
    calls: list[Call]
    kernels: list[Kernel] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """A kernel or a copy of a device."""

    row: int
    kernel: Kernel
    thread: int | None
    """The thread that launched it, where a report says."""
    of_nccl: bool


@dataclass(slots=True)
class ProcessRecord:
    """A process, as a report tells of it."""

    communicators: dict[str, str] = field(default_factory=dict)
    together: list[Together] = field(default_factory=list)
    work: list[DeviceWork] = field(default_factory=list)
    waits_ns: list[int] = field(default_factory=list)
    devices: set[int] = field(default_factory=set)
    window_ns: tuple[int, int] = (0, MOST_NS)

    def within(self, at_ns: int) -> bool:
        return self.window_ns[0] <= at_ns <= self.window_ns[1]


class NsysReport:
    """One file. `members` and `sizes` are those of communicators, of all files."""

    def __init__(
        self,
        path: Path,
        opened: sqlite3.Connection,
        members: dict[str, dict[int, Process]],
        sizes: dict[str, int],
    ) -> None:
        self._path = path
        self._opened = opened
        self._members = members
        self._sizes = sizes
        self._processes: dict[int, ProcessRecord] = defaultdict(ProcessRecord)
        self.notes: list[str] = []
        tables = opened.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        self._tables = {str(name) for (name,) in tables}

    def read(self) -> dict[Process, ProcessRecord]:
        """The processes that communicate or have work on a device. Raises ChakraError."""
        ranges = list(self._ranges())
        self._windows(ranges)
        self._calls(ranges)
        launches = self._launches()
        self._kernels(launches)
        for process in self._processes.values():
            self._pair(process, by_launch=bool(launches))
        return {
            (self._path, number): process
            for number, process in self._processes.items()
            if process.communicators or process.work
        }

    def _ranges(self) -> Iterator[tuple[int, int, int, int, str]]:
        """Row, start, end, thread and text of each range, by start."""
        named = "textId" in self._columns(RANGES)
        text, strings = ("coalesce(e.text, s.value)", f"LEFT JOIN {_STRINGS} s ON s.id = e.textId")
        query = (
            f"SELECT e.rowid, e.start, e.end, e.globalTid, {text if named else 'e.text'} "
            f"FROM {RANGES} e {strings if named else ''} ORDER BY e.start, e.rowid"
        )
        self._need(RANGES, "start", "end", "globalTid", "text")
        if named:
            self._need(_STRINGS, "id", "value")
        plain = False
        seen = False
        for row, start, end, thread, said in self._opened.execute(query):
            if not isinstance(said, str) or not said.startswith(("nccl", "commHash", "nsys")):
                continue
            plain = plain or re.fullmatch(r"nccl\w+", said) is not None
            seen = seen or _BEGINNING_OF_CALL.match(said) is not None
            start_ns = self._time(RANGES, row, "start", start)
            end_ns = start_ns if end is None else self._time(RANGES, row, "end", end)
            yield row, start_ns, end_ns, self._whole(RANGES, row, "globalTid", thread), said
        if plain and not seen:
            self._fail(
                RANGES,
                None,
                "its ranges of NCCL say neither sizes nor communicators: record with the NCCL of "
                "ATLAHS (nccl_nvtx), or with torch.profiler",
            )

    def _windows(self, ranges: Sequence[tuple[int, int, int, int, str]]) -> None:
        """Only what is within a process's marks of profiling counts, where it has them."""
        for _, start_ns, _, thread, text in ranges:
            if found := _WINDOW.match(text):
                process = self._processes[thread >> _THREAD_BITS]
                begin, end = process.window_ns
                process.window_ns = (start_ns, end) if found[1] == "start" else (begin, start_ns)

    def _calls(self, ranges: Sequence[tuple[int, int, int, int, str]]) -> None:
        groups: dict[int, tuple[int, Together]] = {}
        for row, start_ns, end_ns, thread, text in ranges:
            number = thread >> _THREAD_BITS
            process = self._processes[number]
            if made := _COMMUNICATOR.match(text):
                self._communicator(row, number, made)
            elif group := _GROUP.match(text):
                depth, together = groups.get(thread, (0, Together(thread, start_ns, end_ns, [])))
                depth += 1 if group[1] == "Start" else -1
                together.end_ns = end_ns
                groups[thread] = depth, together
                if depth <= 0:
                    del groups[thread]
                    if together.calls:
                        process.together.append(together)
            elif _BEGINNING_OF_CALL.match(text):
                call = self._call(row, start_ns, end_ns, thread, text)
                if not process.within(start_ns):
                    continue
                if self._sizes[process.communicators[call.communicator]] < 2 or not call.size_bytes:
                    continue  # a copy within a device, or nothing
                if thread in groups:
                    groups[thread][1].calls.append(call)
                else:
                    process.together.append(Together(thread, start_ns, end_ns, [call]))
        for _, together in groups.values():
            if together.calls:
                self._fail(RANGES, together.calls[0].row, "its group has no ncclGroupEnd()")

    def _communicator(self, row: int, number: int, made: re.Match[str]) -> None:
        hashed, shared, rank, size = made[1], made[2], int(made[3]), int(made[4])
        process = (self._path, number)
        known = self._members.setdefault(shared, {})
        if self._sizes.setdefault(shared, size) != size:
            self._fail(RANGES, row, f"nranks: found {size}, and {self._sizes[shared]} before")
        if not rank < size or known.setdefault(rank, process) != process:
            self._fail(RANGES, row, f"rank: found {rank} of {size}, expected each once")
        self._processes[number].communicators[hashed] = shared

    def _call(self, row: int, start_ns: int, end_ns: int, thread: int, text: str) -> Call:
        found = _CALL.fullmatch(text)
        if found is None:
            self._fail(
                RANGES,
                row,
                f"text: found {text[:80]!r}, expected `NAME(): commHash H, stream S, data_size N, "
                "type_size N, ... pid N`",
            )
        name, number = found["name"], found["number"]
        if name not in KINDS and name not in MESSAGES:
            allowed = ", ".join([*KINDS, *MESSAGES])
            self._fail(RANGES, row, f"found the call {name}, allowed {allowed}")
        known = self._processes[thread >> _THREAD_BITS].communicators.get(found["hash"])
        if known is None:
            self._fail(
                RANGES, row, f"commHash: found {found['hash']}, which no range of the process made"
            )
        peer = None if number is None else int(number)
        rooted = name in (*MESSAGES, "Broadcast", "Reduce")
        if rooted and (peer is None or peer >= self._sizes[known]):
            of = "a rank" if peer is None else f"0 to {self._sizes[known] - 1}"
            self._fail(RANGES, row, f"root or peer: found {number}, expected {of}")
        item_bytes, size_bytes = int(found["item"]), int(found["bytes"])
        if not item_bytes or size_bytes % item_bytes or size_bytes > MAX_SIZE_BYTES:
            self._fail(
                RANGES,
                row,
                f"data_size: found {size_bytes}, expected a multiple of type_size {item_bytes} of "
                f"at most {MAX_SIZE_BYTES}",
            )
        return Call(
            row, start_ns, end_ns, thread, name, found["hash"], size_bytes, item_bytes, peer
        )

    def _launches(self) -> dict[tuple[int, int], tuple[int, int]]:
        """By process and correlation: when, and on which thread. Waits of hosts are noted."""
        if _LAUNCHES not in self._tables:
            self.notes.append(
                f"no table {_LAUNCHES}: kernels are those of calls in their order, and computation "
                "waits for communication that was over when its device began to idle"
            )
            return {}
        self._need(_LAUNCHES, "start", "globalTid", "correlationId", "nameId")
        self._need(_STRINGS, "id", "value")
        found: dict[tuple[int, int], tuple[int, int]] = {}
        query = (
            f"SELECT r.rowid, r.start, r.globalTid, r.correlationId, s.value FROM {_LAUNCHES} r "
            f"LEFT JOIN {_STRINGS} s ON s.id = r.nameId"
        )
        for row, start, tid, correlation, name in self._opened.execute(query):
            start_ns = self._time(_LAUNCHES, row, "start", start)
            thread = self._whole(_LAUNCHES, row, "globalTid", tid)
            number = thread >> _THREAD_BITS
            if any(word in str(name) for word in HOST_WAITS):
                self._processes[number].waits_ns.append(start_ns)
            if isinstance(correlation, int):
                found[number, correlation] = start_ns, thread
        return found

    def _kernels(self, launches: Mapping[tuple[int, int], tuple[int, int]]) -> None:
        self._need(_KERNELS, "demangledName")
        self._need(_STRINGS, "id", "value")
        for table in (_KERNELS, *(each for each in _COPIES if each in self._tables)):
            self._need(table, "start", "end", "streamId", "deviceId", "globalPid", "correlationId")
            named = table == _KERNELS
            query = (
                "SELECT k.rowid, k.start, k.end, k.streamId, k.deviceId, k.globalPid, "
                f"k.correlationId, {'s.value' if named else repr('copy')} FROM {table} k "
                + (f"LEFT JOIN {_STRINGS} s ON s.id = k.demangledName" if named else "")
            )
            for row, start, end, stream, device, pid, correlation, name in self._opened.execute(
                query
            ):
                start_ns = self._time(table, row, "start", start)
                end_ns = self._time(table, row, "end", end)
                if end_ns < start_ns:
                    self._fail(table, row, f"end: found {end_ns}, before its start {start_ns}")
                number = self._whole(table, row, "globalPid", pid) >> _THREAD_BITS
                process = self._processes[number]
                launch_ns, thread = launches.get((number, correlation), (start_ns, None))
                if not process.within(launch_ns):
                    continue
                kernel = Kernel(
                    str(name)[:80],
                    self._whole(table, row, "streamId", stream),
                    min(launch_ns, start_ns),
                    start_ns,
                    end_ns,
                )
                process.devices.add(self._whole(table, row, "deviceId", device))
                if len(process.devices) > 1:
                    ids = ", ".join(map(str, sorted(process.devices)))
                    self._fail(
                        table, row, f"deviceId: found devices {ids}, expected one for each process"
                    )
                of_nccl = str(name).startswith(("ncclKernel", "ncclDevKernel"))
                process.work.append(DeviceWork(row, kernel, thread, named and of_nccl))

    def _pair(self, process: ProcessRecord, *, by_launch: bool) -> None:
        """Find the kernels of calls."""
        process.together.sort(key=lambda one: one.start_ns)
        kernels = sorted(
            (each for each in process.work if each.of_nccl), key=lambda one: one.kernel.launch_ns
        )
        if not by_launch:
            if len(kernels) != len(process.together):
                self._fail(
                    _KERNELS,
                    None,
                    f"a process has {len(kernels)} kernels of NCCL, and {RANGES} has "
                    f"{len(process.together)} calls, or groups of calls, of it",
                )
            for one, own in zip(process.together, kernels, strict=True):
                one.kernels.append(own.kernel)
            return
        by_thread: dict[int, list[Together]] = defaultdict(list)
        for one in process.together:
            by_thread[one.thread].append(one)
        for own in kernels:
            calls = by_thread.get(-1 if own.thread is None else own.thread, [])
            place = bisect_right(calls, own.kernel.launch_ns, key=lambda one: one.start_ns) - 1
            if place < 0 or calls[place].end_ns < own.kernel.launch_ns:
                self._fail(
                    _KERNELS,
                    own.row,
                    f"{own.kernel.name} was launched in no call of NCCL that {RANGES} has "
                    "(kernels of CUDA graphs are not read)",
                )
            calls[place].kernels.append(own.kernel)
        for one in process.together:
            if not one.kernels:
                call = one.calls[0]
                self._fail(RANGES, call.row, f"nccl{call.name} launched no kernel of NCCL")

    def _columns(self, table: str) -> set[str]:
        if table not in self._tables:
            self._fail(
                table,
                None,
                "is not there: export with `nsys export --type sqlite`, of a report with "
                "--trace=cuda,nvtx",
            )
        return {str(each[1]) for each in self._opened.execute(f"PRAGMA table_info({table})")}

    def _need(self, table: str, *columns: str) -> None:
        found = self._columns(table)
        for each in columns:
            if each not in found:
                self._fail(table, None, f"lacks column {each}, found {', '.join(sorted(found))}")

    def _time(self, table: str, row: int, column: str, value: object) -> int:
        found = self._whole(table, row, column, value)
        if found >= MOST_NS:
            self._fail(table, row, f"{column}: found {value!r}, expected nanoseconds")
        return found

    def _whole(self, table: str, row: int, column: str, value: object) -> int:
        if not isinstance(value, int) or value < 0:
            self._fail(table, row, f"{column}: found {value!r}, expected a whole number")
        return value

    def _fail(self, table: str, row: int | None, what: str) -> NoReturn:
        where = f"table {table}" if row is None else f"table {table}, row {row}"
        raise ChakraError(self._path, None, f"{where}: {what}")

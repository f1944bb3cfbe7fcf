"""Reports of nsys, as ATLAHS records them, become graphs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import CollectiveNode, ComputeNode, ReceiveNode, SendNode
from analysis.chakra.sources.nsys import MAGIC
from analysis.chakra.sources.read import TraceSet, read_workload
from analysis.chakra.summary import problems

_TABLES = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INT NOT NULL, end INT, eventType INT, text TEXT, textId INT,
    globalTid INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT NOT NULL, end INT NOT NULL, globalTid INT,
    correlationId INT, nameId INT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT NOT NULL, end INT NOT NULL, deviceId INT,
    streamId INT NOT NULL, correlationId INT, globalPid INT, demangledName INT NOT NULL);
INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)'),
    (3, 'cudaLaunchKernel_v7000'), (4, 'cudaStreamWaitEvent_v3020');
"""
_COMPUTE, _COMMUNICATION = 7, 20


class _Rank:
    """A process of a report. Its host launches every microsecond; times are nanoseconds."""

    def __init__(self, opened: sqlite3.Connection, rank: int) -> None:
        self._opened = opened
        self.rank = rank
        self.pid = 70 + rank
        self._thread = self.pid << 24 | self.pid
        self._host = 1000 * rank
        self._free = {_COMPUTE: 0, _COMMUNICATION: 0}
        self._launched = 0

    def says(self, text: str) -> None:
        """A range that is over at once."""
        self._range(f"{text} pid {self.pid}", self._host, self._host + 10)
        self._host += 100

    def computes(self, takes_ns: int) -> None:
        self._launch(_COMPUTE, 1, takes_ns)

    def calls(self, text: str, takes_ns: int) -> None:
        """A call of NCCL behind what has been launched to compute."""
        start = self._host
        self._free[_COMMUNICATION] = max(self._free.values())
        self._launch(_COMMUNICATION, 2, takes_ns)
        self._range(f"ncc{text}, pid {self.pid}", start, self._host)

    def waits(self) -> None:
        """The stream that computes waits for the other one."""
        self._runtime(4)
        self._free[_COMPUTE] = max(self._free.values())

    def together(self, texts: list[str], takes_ns: int) -> None:
        """Calls of a group, launched when it ends."""
        self.says("ncclGroupStart():")
        for text in texts:
            self._range(f"ncc{text}, pid {self.pid}", self._host, self._host + 10)
            self._host += 100
        start = self._host
        self._free[_COMMUNICATION] = max(self._free.values())
        self._launch(_COMMUNICATION, 2, takes_ns)
        self._range(f"ncclGroupEnd(): pid {self.pid}", start, self._host)

    def _launch(self, stream: int, name: int, takes_ns: int) -> None:
        self._runtime(3)
        start = max(self._free[stream], self._host)
        row = (start, start + takes_ns, 0, stream, self._launched, self.pid << 24, name)
        self._opened.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?)", row)
        self._free[stream] = start + takes_ns

    def _runtime(self, name: int) -> None:
        self._launched += 1
        row = (self._host + 20, self._host + 80, self._thread, self._launched, name)
        self._opened.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", row)
        self._host += 100

    def _range(self, text: str, start: int, end: int) -> None:
        row = (start, end, 59, text, None, self._thread)
        self._opened.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?)", row)


def _world_and_pair(rank: _Rank) -> None:
    """Communicators of all four, and of each two ranks of a node."""
    rank.says(f"commHash 0xa commId 0x1 rank {rank.rank} nranks 4")
    node, place = divmod(rank.rank, 2)
    rank.says(f"commHash 0xb{node} commId 0x2{node} rank {place} nranks 2")


def _step(rank: _Rank) -> None:
    """A rank of a node's pair passes something on, and all reduce it beside what they compute."""
    _world_and_pair(rank)
    rank.computes(50_000)
    rank.calls(
        "lAllReduce(): commHash 0xa, stream 0x5, data_size 4000, type_size 4, red_op 0", 9_000
    )
    rank.computes(5_000)
    rank.waits()
    rank.computes(30_000)
    node, place = divmod(rank.rank, 2)
    about = f"commHash 0xb{node}, stream 0x5, data_size 256, type_size 2,"
    rank.together(
        [
            f"lSend(): {about} receiver_rank {1 - place}",
            f"lRecv(): {about} sender_rank {1 - place}",
        ],
        2_000,
    )
    rank.calls(f"lAllGather(): commHash 0xb{node}, stream 0x5, data_size 500, type_size 2", 1_000)


def _reports(folder: Path, step: Callable[[_Rank], None] = _step) -> Path:
    """Two nodes' reports in a folder."""
    for node in (0, 1):
        path = folder / f"nsys_report_node{node}.{node}.sqlite"
        with closing(sqlite3.connect(path)) as opened, opened:
            opened.executescript(_TABLES)
            for rank in (2 * node, 2 * node + 1):
                step(_Rank(opened, rank))
    return folder


def _change(folder: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(folder / "nsys_report_node0.0.sqlite")) as opened, opened:
        for each in statements:
            assert opened.execute(each).rowcount, each
    return folder


def _read(path: Path) -> TraceSet:
    read = read_workload(path)
    assert problems(read.graphs) == []
    return read


def test_calls_compute_and_wait_as_they_were_recorded(tmp_path: Path) -> None:
    graphs = _read(_reports(tmp_path)).graphs
    assert len(graphs) == 4
    first, beside, reduce, behind, send, receive, gather = graphs[3]
    assert isinstance(reduce, CollectiveNode) and isinstance(gather, CollectiveNode)
    assert (reduce.call.kind, reduce.call.size_bytes, reduce.call.ranks) == (
        "all_reduce", 4000, (0, 1, 2, 3)
    )  # fmt: skip
    assert (gather.call.kind, gather.call.size_bytes, gather.call.ranks) == (
        "all_gather", 1000, (2, 3)
    )  # fmt: skip
    assert isinstance(send, SendNode) and (send.peer, send.size_bytes) == (2, 256)
    assert isinstance(receive, ReceiveNode) and receive.peer == 2
    # The all-reduce runs beside 5 us of computation; the next 30 us wait for it.
    assert reduce.after == (first.id,)
    assert beside.after == (first.id,)
    assert set(behind.after) == {beside.id, reduce.id}
    assert [n.duration_ns for n in (first, beside, behind) if isinstance(n, ComputeNode)] == [
        50_000, 5_000, 30_000
    ]  # fmt: skip
    assert behind.id in send.after and send.after == receive.after
    assert {send.id, receive.id} <= set(gather.after)


def test_reports_are_found_by_folder_and_by_prefix(tmp_path: Path) -> None:
    by_folder = _read(_reports(tmp_path)).graphs
    assert _read(tmp_path / "nsys_report_").graphs == by_folder
    with pytest.raises(ChakraError, match="communicator 0x1 of 4 ranks has 2 in the reports"):
        read_workload(tmp_path / "nsys_report_node1.1.sqlite")


def test_without_launches_calls_have_the_kernels_of_their_order(tmp_path: Path) -> None:
    _reports(tmp_path)
    whole = _read(tmp_path)
    for path in tmp_path.glob("*.sqlite"):
        with closing(sqlite3.connect(path)) as opened, opened:
            opened.execute("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")
    read = _read(tmp_path)
    assert [type(node) for node in read.graphs[0]] == [type(node) for node in whole.graphs[0]]
    assert "no table CUPTI_ACTIVITY_KIND_RUNTIME" in read.notes[0]
    _change(
        tmp_path, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE demangledName = 2 AND rowid < 4"
    )
    with pytest.raises(ChakraError, match=r"has 2 kernels of NCCL, and NVTX_EVENTS has 3 calls"):
        read_workload(tmp_path)


def test_marks_of_profiling_bound_what_is_read(tmp_path: Path) -> None:
    def twice(rank: _Rank) -> None:
        _world_and_pair(rank)
        for number in range(3):
            if number == 1:
                rank.says("nsys profiling start,")
            if number == 2:
                rank.says("nsys profiling stopped,")
            rank.computes(1_000 + number)
            about = "commHash 0xa, stream 0x5, data_size 8, type_size 4, red_op 0"
            rank.calls(f"lAllReduce(): {about}", 900)

    (computed, reduced) = _read(_reports(tmp_path, twice)).graphs[0]
    assert isinstance(computed, ComputeNode) and computed.duration_ns == 1_001
    assert isinstance(reduced, CollectiveNode)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "UPDATE NVTX_EVENTS SET text = replace(text, 'data_size 4000', 'data_size 4001') "
            "WHERE rowid = 3",
            "table NVTX_EVENTS, row 3: data_size: found 4001, expected a multiple of type_size 4",
        ),
        (
            "UPDATE NVTX_EVENTS SET text = replace(text, 'AllReduce', 'AllGossip') WHERE rowid = 3",
            "table NVTX_EVENTS, row 3: found the call AllGossip, allowed AllReduce",
        ),
        (
            "UPDATE NVTX_EVENTS SET text = replace(text, '0xa,', '0xc,') WHERE rowid = 3",
            "table NVTX_EVENTS, row 3: commHash: found 0xc, which no range of the process made",
        ),
        (
            "UPDATE NVTX_EVENTS SET text = replace(text, 'receiver_rank 1', 'receiver_rank 2')",
            "table NVTX_EVENTS, row 5: root or peer: found 2, expected 0 to 1",
        ),
        (
            "UPDATE NVTX_EVENTS SET text = replace(text, 'stream', 'steam') WHERE rowid = 3",
            "table NVTX_EVENTS, row 3: text: found 'ncclAllReduce(): commHash",
        ),
        (
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = 'late' WHERE rowid = 2",
            "table CUPTI_ACTIVITY_KIND_KERNEL, row 2: end: found 'late', expected a whole number",
        ),
        (
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1 WHERE rowid = 2",
            "table CUPTI_ACTIVITY_KIND_KERNEL, row 2: deviceId: found devices 0, 1",
        ),
        (
            "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = start + 900000 WHERE rowid = 2",
            "table CUPTI_ACTIVITY_KIND_KERNEL, row 2: ncclDevKernel_AllReduce",
        ),
        (
            "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = 2",
            "table NVTX_EVENTS, row 3: ncclAllReduce launched no kernel of NCCL",
        ),
        (
            "DELETE FROM NVTX_EVENTS WHERE text LIKE 'commHash%'",
            "table NVTX_EVENTS, row 3: commHash: found 0xa",
        ),
        (
            "DELETE FROM NVTX_EVENTS WHERE text LIKE 'ncclGroupEnd%'",
            "table NVTX_EVENTS, row 5: its group has no ncclGroupEnd()",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_told_by_file_table_and_row(tmp_path: Path, statement: str, told: str) -> None:
    path = _change(_reports(tmp_path), statement)
    with pytest.raises(ChakraError) as refused:
        read_workload(path)
    assert f"{path}/nsys_report_node0.0.sqlite: {told}" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", "table CUPTI_ACTIVITY_KIND_KERNEL: is not there"),
        (
            "ALTER TABLE NVTX_EVENTS RENAME COLUMN globalTid TO tid",
            "table NVTX_EVENTS: lacks column globalTid, found end, eventType",
        ),
        (
            "UPDATE NVTX_EVENTS SET text = 'ncclAllReduce'",
            "say neither sizes nor communicators: record with the NCCL of ATLAHS",
        ),
    ],
)
def test_what_a_report_lacks_is_told(tmp_path: Path, change: str, told: str) -> None:
    _reports(tmp_path)
    with closing(sqlite3.connect(tmp_path / "nsys_report_node0.0.sqlite")) as opened, opened:
        opened.execute(change)
    with pytest.raises(ChakraError) as refused:
        read_workload(tmp_path)
    assert told in str(refused.value)


@settings(max_examples=60)
@given(st.data())
def test_broken_reports_are_told_by_their_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = _reports(tmp_path_factory.mktemp("broken"))
    path = folder / "nsys_report_node0.0.sqlite"
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(len(MAGIC), len(whole) - 1))
        whole[place] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(whole))
    try:
        read_workload(folder)
    except ChakraError as error:
        assert str(folder) in str(error)

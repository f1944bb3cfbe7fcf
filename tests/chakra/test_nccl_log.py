"""Debug logs of NCCL become graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import CollectiveNode, Graph, ReceiveNode, SendNode
from analysis.chakra.sources.read import read_workload
from analysis.chakra.summary import problems


def _call(rank: int, name: str, count: int, comm: str, of: int, **about: int) -> str:
    known = {"number": 0, "type": 7, "root": 0, "stream": 1} | about
    return (
        f"node{rank // 2}:7{rank}:9 [{rank % 2}] NCCL INFO {name}: opCount {known['number']:x} "
        f"sendbuff 0x7f recvbuff (nil) count {count} datatype {known['type']} op 0 root "
        f"{known['root']} comm {comm} [nranks={of}] stream 0x{known['stream']}"
    )


def _log() -> list[str]:
    """Two nodes of two GPUs: the world, then pairs (0, 2) and (1, 3), split off it."""
    lines = ["a program says hello", "NCCL version 2.21.5+cuda12.4"]
    for rank in range(4):
        lines.append(_world(rank))
    for rank in range(4):
        about = f"parent 0xa{rank} splitCount 1 color {rank % 2}"
        lines.append(_named(rank, rank // 2, 2, f"0xb{rank}", about))
    for rank in range(4):
        lines += [
            _call(rank, "AllReduce", 1000, f"0xa{rank}", 4),
            _call(rank, "AllGather", 500, f"0xb{rank}", 2, type=9),
            _call(rank, "Broadcast", 64, f"0xa{rank}", 4, root=2, type=1, stream=2),
        ]
    return lines


def _named(rank: int, place: int, ranks: int, comm: str, about: str) -> str:
    return (
        f"node{rank // 2}:7{rank}:9 [{rank % 2}] NCCL INFO ncclCommInitRank comm {comm} rank "
        f"{place} nranks {ranks} cudaDev 0 nvmlDev 0 busId 1000 {about} - Init COMPLETE"
    )


def _world(rank: int) -> str:
    return _named(rank, rank, 4, f"0xa{rank}", "commId 0x99")


def _write(folder: Path, lines: list[str]) -> Path:
    path = folder / "nccl.log"
    path.write_text("\n".join(lines))
    return path


def _calls(graph: Graph) -> list[tuple[str, int, tuple[int, ...], int, tuple[int, ...]]]:
    return [
        (n.call.kind, n.call.size_bytes, n.call.ranks, n.call.root, n.after)
        for n in graph
        if isinstance(n, CollectiveNode)
    ]


def test_calls_are_those_of_communicators_on_their_streams(tmp_path: Path) -> None:
    read = read_workload(_write(tmp_path, _log()))
    assert problems(read.graphs) == []
    assert _calls(read.graphs[3]) == [
        ("all_reduce", 4000, (0, 1, 2, 3), 0, ()),
        ("all_gather", 2000, (1, 3), 0, (0,)),
        ("broadcast", 64, (0, 1, 2, 3), 2, ()),
    ]
    assert "no times" in read.notes[0] and len(read.notes) == 1


def test_messages_of_one_operation_begin_together(tmp_path: Path) -> None:
    lines = [_world(rank) for rank in range(4)]
    for rank in range(4):
        right, left = (rank + 1) % 4, (rank - 1) % 4
        for number in (0, 1):
            about = {"number": number}
            lines.append(_call(rank, "Send", 10, f"0xa{rank}", 4, root=right, **about))
            lines.append(_call(rank, "Recv", 10, f"0xa{rank}", 4, root=left, **about))
    graphs = read_workload(_write(tmp_path, lines)).graphs
    assert problems(graphs) == []
    sent, received, again, _ = graphs[0]
    assert isinstance(sent, SendNode) and (sent.peer, sent.size_bytes) == (1, 40)
    assert isinstance(received, ReceiveNode) and (received.peer, received.after) == (3, ())
    assert again.after == (sent.id, received.id)


def test_without_lines_of_init_ranks_are_numbered_as_they_come(tmp_path: Path) -> None:
    lines = [_call(rank, "AllReduce", 8, "0xa", 2) for rank in (1, 0)]
    read = read_workload(_write(tmp_path, lines))
    assert [_calls(graph) for graph in read.graphs] == [[("all_reduce", 32, (0, 1), 0, ())]] * 2
    assert "ranks are numbered by their first lines" in read.notes[1]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("datatype 9", "datatype 19", "line 12: datatype: found 19, allowed 0 to 11"),
        ("AllGather:", "AllGossip:", "line 12: found the call AllGossip, allowed AllReduce"),
        ("root 2 ", "root 4 ", "line 13: root: found 4, allowed 0 to 3"),
        (" count 1000", " counts 1000", "line 11: found 'AllReduce: opCount"),
        ("[nranks=2]", "[nranks=3]", "line 12: nranks: found 3, and 2 before"),
    ],
)
def test_mistakes_are_told_by_their_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    text = "\n".join(_log())
    assert old in text
    path = _write(tmp_path, text.replace(old, new).split("\n"))
    with pytest.raises(ChakraError) as refused:
        read_workload(path)
    assert told in str(refused.value)


def test_a_log_of_some_ranks_is_refused(tmp_path: Path) -> None:
    lines = [line for line in _log() if not line.startswith("node1:73")]
    with pytest.raises(ChakraError, match="a communicator of 4 ranks has 3 in the log"):
        read_workload(_write(tmp_path, lines))
    with pytest.raises(ChakraError, match="has no lines of calls"):
        read_workload(_write(tmp_path, [_world(rank) for rank in range(4)]))


@given(st.data())
def test_broken_logs_are_told_by_their_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray("\n".join(_log()[2:]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(40, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("broken") / "nccl.log"
    path.write_bytes(bytes(whole[: data.draw(st.integers(len(whole) // 2, len(whole)))]))
    try:
        read_workload(path)
    except ChakraError as error:
        assert str(path) in str(error)

"""Memory nodes take recorded time in words, a stated time, or are messages with a pool's hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.codec import write_trace
from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import ComputeNode, MemoryNode, ReceiveNode, SendNode
from analysis.chakra.memory import stripes, with_memory
from analysis.chakra.schema import NodeType
from analysis.chakra.sources.read import read_workload
from analysis.chakra.summary import problems
from analysis.chakra.trace import Attribute, Trace, TraceNode
from groundwire.pipeline import run
from tests.session.command import groundwire
from topologies.spec.memory_section import MemorySpec
from topologies.spec.spec import parse_dict

MIB = 1 << 20


def _memory(
    id: int, loads: bool, size: int, micros: int = 0, after: tuple[int, ...] = ()
) -> TraceNode:
    kind = NodeType.MEM_LOAD if loads else NodeType.MEM_STORE
    size_of = Attribute("tensor_size", "uint64_val", size)
    return TraceNode(id, f"m{id}", kind, (), after, duration_micros=micros, attributes=(size_of,))


def _compute(id: int, micros: int, after: tuple[int, ...]) -> TraceNode:
    return TraceNode(id, "c", NodeType.COMP, (), after, duration_micros=micros)


def _write(prefix: Path, ranks: int, micros: int = 0) -> Path:
    """Each rank loads 4 MiB, computes for 100 us, and stores 2 MiB."""
    nodes = (
        _memory(1, True, 4 * MIB, micros),
        _compute(2, 100, (1,)),
        _memory(3, False, 2 * MIB, micros, (2,)),
    )
    for rank in range(ranks):
        write_trace(f"{prefix}.{rank}.et", Trace(nodes))
    return prefix


def test_a_recorded_duration_is_taken_in_words(tmp_path: Path) -> None:
    read = read_workload(_write(tmp_path / "t", 2, micros=30))
    (note,) = read.notes
    assert "4 memory nodes (12,582,912 bytes) are no traffic here" in note
    assert "120 us in all" in note
    assert [node.duration_ns for node in read.graphs[0]] == [30_000, 100_000, 30_000]


def test_without_a_duration_and_a_memory_it_is_refused_by_its_node(tmp_path: Path) -> None:
    with pytest.raises(
        ChakraError, match=r"rank 0: node 1 \(MEM_LOAD\) has no duration, and nothing says"
    ):
        read_workload(_write(tmp_path / "t", 2))
    done = groundwire("trace", "import", tmp_path / "t")
    assert done.returncode == 2 and "(--memory)" in done.stderr


def test_a_tier_of_a_ranks_own_takes_its_latency_and_its_bytes_at_its_rate(tmp_path: Path) -> None:
    tier = MemorySpec.model_validate({"kind": "local", "rate": "2GB/s", "latency": "1us"})
    graph = read_workload(_write(tmp_path / "t", 1), memory=tier).graphs[0]
    first, _, last = graph
    assert isinstance(first, ComputeNode) and first.on_host
    assert first.duration_ns == 1000 + 4 * MIB // 2
    assert last.duration_ns == 1000 + 2 * MIB // 2


def test_astra_sims_configurations_are_read_or_refused_by_their_key(tmp_path: Path) -> None:
    prefix = _write(tmp_path / "t", 2)
    file = tmp_path / "memory.json"
    file.write_text(
        json.dumps({"memory-type": "MEMORY_POOL", "remote-mem-latency": 500, "remote-mem-bw": 40})
    )
    done = groundwire("trace", "import", prefix, "--memory", file, "--memory-hosts", "2", "--json")
    document = json.loads(done.stdout)
    assert document["ranks"] == 4 and document["problems"] == []
    assert document["nodes"] == {"compute": 10, "receive": 16, "send": 16}
    for kind in ("PER_NODE_MEMORY_EXPANSION", "NO_MEMORY_EXPANSION", "else"):
        file.write_text(json.dumps({"memory-type": kind}))
        done = groundwire("trace", "import", prefix, "--memory", file)
        assert done.returncode == 2 and "memory-type: found" in done.stderr and kind in done.stderr


@given(st.integers(0, 1 << 40), st.integers(1, 64))
def test_stripes_are_the_whole_and_equal(size: int, hosts: int) -> None:
    found = stripes(size, hosts)
    assert sum(found) == max(-(-size // 4), 1) * 4
    assert max(found) - min(found) <= 4 and len(found) <= hosts


@given(
    st.lists(st.lists(st.tuples(st.booleans(), st.integers(1, 10**6)), max_size=5), min_size=1,
             max_size=4),
    st.integers(1, 3),
)  # fmt: skip
def test_a_pool_answers_every_access(program: list[list[tuple[bool, int]]], hosts: int) -> None:
    """All messages have their other end, nobody waits for ever, and what is loaded and stored
    comes and goes."""
    pool = {"kind": "pool", "hosts": hosts, "rate": "1GB/s"}
    graphs = [
        tuple(
            MemoryNode(id=id, name="m", after=(id - 1,) if id else (), loads=loads, size_bytes=size)
            for id, (loads, size) in enumerate(accesses)
        )
        for accesses in program
    ]
    done, _ = with_memory(graphs, MemorySpec.model_validate(pool))
    assert len(done) == len(program) + hosts
    assert problems([graph or (ComputeNode(id=0, name="idle"),) for graph in done]) == []
    for loads, side in ((True, ReceiveNode), (False, SendNode)):
        asked = sum(
            sum(stripes(size, hosts)) for accesses in program for load, size in accesses
            if load == loads
        )  # fmt: skip
        small = 64
        moved = sum(n.size_bytes for graph in done[: len(program)] for n in graph
                    if isinstance(n, side) and n.size_bytes != small)  # fmt: skip
        tiny = [
            s for accesses in program for load, size in accesses if load == loads
            for s in stripes(size, hosts) if s == small
        ]  # fmt: skip
        assert moved == asked - sum(tiny)


def test_a_pool_is_on_the_wire(tmp_path: Path) -> None:
    """Two ranks load 4 MiB each from one host over 10 Gb/s: its port carries both, and so a load
    takes what 8 MiB take there."""
    _write(tmp_path / "t", 2)
    raw = {
        "name": "pool",
        "fabric": {"kind": "flat", "hosts": 3, "link": {"rate": "10Gbps", "delay": "1us"}},
        "workload": {
            "kind": "chakra",
            "path": str(tmp_path / "t"),
            "memory": {"kind": "pool", "rate": "100GB/s", "latency": "1us"},
        },
        "predict": ["flow"],
    }
    spec = parse_dict(raw)
    assert spec.workload.ranks == 3
    result = run(spec, kernel="virtual", out=tmp_path / "run").result
    assert result["valid"]
    loads = [row for row in result["collectives"] if row["size_bytes"] == 4 * MIB]
    assert len(loads) == 2
    both_ns = 8 * MIB * 8 / 10
    longest = max(row["end_ns"] for row in loads) - min(row["start_ns"] for row in loads)
    assert both_ns < longest < 1.15 * both_ns
    assert any("memory hosts, ranks 2 to 2" in note for note in result["notes"])

"""The dependencies in a rank's log, and the files of traces that are refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.files import write_graphs
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, ReceiveNode, SendNode
from analysis.chakra.sources.from_run import graphs_of_run, over_before
from analysis.chakra.sources.from_spec import graphs_of_spec
from analysis.chakra.sources.graph_builder import direct, positions
from analysis.chakra.summary import problems
from analysis.runs.records import CollectiveRecord, ComputeRecord
from analysis.runs.run import load_run
from collectives.call import CollectiveCall
from tests.report.synthetic_run import make_run
from tests.session.command import groundwire
from topologies.spec.spec import parse_spec

CALL = CollectiveCall("all_reduce", 4096, (0, 1))


def _pair() -> list[Graph]:
    return [
        (
            ComputeNode(id=0, name="forward", duration_ns=1500, flops=7, memory_bytes=9),
            CollectiveNode(id=1, name="gradient", after=(0,), call=CALL),
        )
        for _ in range(2)
    ]


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[ComputeRecord | CollectiveRecord], list[int]]:
    """A rank's program on an exact clock, as it would log it, and what was over before each: a bit
    set. Posting and finding something over take no time."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    now, known = 0, 0
    over: dict[int, int] = {}
    log: list[tuple[int, ComputeRecord | CollectiveRecord]] = []
    flying: dict[int, tuple[int, int, int]] = {}
    for step in range(draw(st.integers(1, 14))):
        kind = chance.choice(["compute", "post", "wait"])
        if kind == "compute":
            end = now + chance.randint(1, 50)
            event: ComputeRecord | CollectiveRecord = ComputeRecord(
                event="compute", name="c", phase="p", iteration=0, start_ns=now, end_ns=end
            )
            over[step], now = known, end
            known |= 1 << step
            log.append((step, event))
        elif kind == "post":
            over[step] = known
            flying[step] = (now, now + chance.randint(60, 300), len(log))
        elif flying:
            found = chance.choice(sorted(flying))
            start, end, logged = flying.pop(found)
            waited = max(end - now, 0)
            now = max(now, end)
            event = CollectiveRecord(
                event="collective", id=str(found), kind="all_reduce", phase="p", group="default",
                tag=found, size_bytes=4, iteration=0, ranks=None, start_ns=start, end_ns=end,
                waited_ns=waited, known=logged,
            )  # fmt: skip
            log.append((found, event))
            known |= 1 << found | over[found]
    place = {number: index for index, (number, _) in enumerate(log)}
    truth = [
        sum(1 << place[before] for before in positions(over[number]) if before in place)
        for number, _ in log
    ]
    return [event for _, event in log], truth


@given(programs())
def test_a_log_shows_what_was_over_before_each_event(
    program: tuple[list[ComputeRecord | CollectiveRecord], list[int]],
) -> None:
    events, truth = program
    assert [(1 << count) - 1 for count in over_before(events)] == truth


def test_a_log_without_what_was_known_is_refused() -> None:
    line = {
        "event": "collective", "id": "i0.x", "kind": "all_reduce", "phase": "p",
        "group": "default", "tag": 0, "size_bytes": 4, "iteration": 0, "ranks": None,
        "start_ns": 1, "end_ns": 2, "waited_ns": 1,
    }  # fmt: skip
    with pytest.raises(ValueError, match="known"):
        CollectiveRecord.model_validate(line)


@given(programs())
def test_direct_dependencies_imply_all_and_only_what_was_over(
    program: tuple[list[ComputeRecord | CollectiveRecord], list[int]],
) -> None:
    _, over = program
    parents = direct(over)

    def reachable(position: int) -> set[int]:
        return {p for parent in parents[position] for p in (parent, *reachable(parent))}

    for position, known in enumerate(over):
        assert reachable(position) == set(positions(known))
        for parent in parents[position]:
            assert all(parent not in reachable(p) for p in parents[position] if p != parent)


def test_the_measured_graph_has_the_overlap_and_the_times_of_the_log(tmp_path: Path) -> None:
    graphs = graphs_of_run(
        load_run(make_run(tmp_path / "run", ranks=4, fabric="kind: flat, hosts: 4"))
    )
    assert len(graphs) == 4
    for rank, graph in enumerate(graphs):
        assert min(node.start_ns for node in graph) == 0
        collectives = [node for node in graph if isinstance(node, CollectiveNode)]
        gradient = next(node for node in collectives if node.call.kind == "all_reduce")
        computes = [node for node in graph if isinstance(node, ComputeNode)]
        assert gradient.duration_ns == 900_000 + 5_000 * rank
        # Posted before the computation that it overlaps, which so does not wait for it.
        overlapped = [n for n in computes if n.start_ns == gradient.start_ns]
        assert overlapped and all(gradient.id not in n.after for n in overlapped)


def test_a_spec_of_collectives_is_a_chain_with_its_sizes() -> None:
    spec = parse_spec(
        "name: s\nfabric: {kind: flat, hosts: 3}\nworkload: {kind: collectives, ranks: 3, "
        "operations: [{kind: all_reduce, size: 1000}, {kind: all_gather, size: 996}]}"
    )
    first, second = graphs_of_spec(spec)[2]
    assert isinstance(first, CollectiveNode) and isinstance(second, CollectiveNode)
    assert (first.after, second.after) == ((), (0,))
    assert (first.call.size_bytes, second.call.size_bytes) == (1000, 996)


def test_ranks_that_disagree_are_told() -> None:
    left, right = _pair()
    assert problems([left, right]) == []
    other = replace(right[1], call=replace(CALL, size_bytes=8))  # type: ignore[call-arg]
    assert "disagree on collective 0" in problems([left, (right[0], other)])[0]
    lonely = (*left, SendNode(id=2, name="s", peer=1, size_bytes=5, tag=3))
    assert "sent only" in problems([lonely, right])[0]
    met = (*right, ReceiveNode(id=2, name="r", peer=0, size_bytes=5, tag=3))
    assert problems([lonely, met]) == []


def test_import_says_what_is_there_and_refuses_what_is_broken(tmp_path: Path) -> None:
    paths = write_graphs(tmp_path / "t", _pair())
    done = groundwire("trace", "import", tmp_path / "t", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["nodes"] == {"collective": 2, "compute": 2} and summary["ranks"] == 2
    assert summary["collectives"] == [
        {"kind": "all_reduce", "size_bytes": 4096, "ranks": 2, "count": 1}
    ]
    paths[1].write_bytes(paths[1].read_bytes()[:-3])
    broken = groundwire("trace", "import", tmp_path / "t")
    assert broken.returncode == 2
    assert str(paths[1]) in broken.stderr and "byte" in broken.stderr
    assert "Traceback" not in broken.stderr


def test_ranks_that_all_send_before_they_receive_are_refused_by_their_nodes(
    tmp_path: Path,
) -> None:
    """As in ASTRA-sim's custom_ring_allreduce_8npus_1MB. A rank that receives first breaks the
    circle."""
    ring: list[Graph] = [
        (
            SendNode(id=3, name="send", peer=(rank + 1) % 3, size_bytes=8, tag=0),
            ReceiveNode(id=7, name="recv", after=(3,), peer=(rank - 1) % 3, size_bytes=8, tag=0),
        )
        for rank in range(3)
    ]
    write_graphs(tmp_path / "ring", ring)
    done = groundwire("trace", "import", tmp_path / "ring")
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert (
        "node 3 (send) of rank 0 waits for the receive of rank 1, node 7, which waits for node 3"
    ) in said
    send, receive = ring[0]
    first: Graph = (replace(receive, after=()), replace(send, after=(receive.id,)))
    assert problems([first, *ring[1:]]) == []


@pytest.mark.parametrize("name", ["torus-4x4", "dlrm-fat-tree-k4"])
def test_the_astra_command_that_export_prints_runs(tmp_path: Path, name: str) -> None:
    done = groundwire(
        "trace", "export", "--format", "astra-sim", f"topologies/{name}.yaml", "--out", tmp_path
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words[:2] == ["groundwire", "astra"]
    simulated = groundwire(*words[1:])
    assert simulated.returncode == 0, simulated.stderr
    assert simulated.stdout.count("finished") == 16


_TRAINING = (
    "name: training\nfabric: {kind: flat, hosts: 8}\n"
    "workload: {kind: training, parallelism: {data: 2, tensor: 2, pipeline: 2}, layers: 4, "
    "microbatches: 2, overlap: %s}\n"
)


@pytest.mark.parametrize("overlap", ["true", "false"])
def test_all_ranks_of_a_training_spec_agree(overlap: str) -> None:
    """Two stages of two by two ranks."""
    graphs = graphs_of_spec(parse_spec(_TRAINING % overlap))
    assert problems(graphs) == []
    for rank, graph in enumerate(graphs):
        calls = [node.call for node in graph if isinstance(node, CollectiveNode)]
        assert all(rank in call.ranks for call in calls)
        # Two halves of two layers, forward and backward, by microbatch; a message each way.
        assert sum(c.ranks == (rank & ~1, rank | 1) for c in calls) == 16
        assert sum(c.kind == "send_recv" for c in calls) == 4
        assert [n.name for n in graph if isinstance(n, ComputeNode)][-1] == "update.sgd"


@pytest.mark.parametrize("format_", ["chakra", "goal", "astra-sim", "msccl-xml"])
def test_a_training_spec_goes_out_in_every_format(tmp_path: Path, format_: str) -> None:
    spec = tmp_path / "training.yaml"
    spec.write_text(_TRAINING % "true")
    done = groundwire("trace", "export", "--format", format_, spec, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    if format_ == "astra-sim":
        simulated = groundwire(*done.stdout.split()[1:])
        assert simulated.returncode == 0, simulated.stderr
        assert simulated.stdout.count("finished") == 8
    else:
        assert all(Path(line).stat().st_size for line in done.stdout.splitlines())

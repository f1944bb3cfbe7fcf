"""PyTorch's observer under Gloo becomes a graph with its communication in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.astra.files.export import default_system, write_inputs
from analysis.astra.files.network import Dimension, NetworkConfig
from analysis.astra.simulate import simulate
from analysis.astra.simulation import read_simulation
from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, ReceiveNode, SendNode
from analysis.chakra.sources.pytorch import read_observer

WORKER = Path(__file__).with_name("observed_worker.py")
WORLD = 2
PRODUCTS = ("aten::linear", "aten::mm")


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("observed")
    ranks = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), str(WORLD), str(folder)],
            stderr=subprocess.PIPE,
        )
        for rank in range(WORLD)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors.decode()
    return [folder / f"observed.{rank}.json" for rank in range(WORLD)]


@pytest.fixture(scope="module")
def graphs(observed: list[Path]) -> list[Graph]:
    return [read_observer(path, lambda flops, memory_bytes: flops)[0] for path in observed]


def test_every_collective_is_there_in_order(graphs: list[Graph]) -> None:
    parameters = [16 * 8, 16, 4 * 16, 4]
    expected = [
        *(("all_reduce", 4 * n, 0) for n in parameters),
        ("all_gather", 4 * 6 * WORLD, 0),
        ("all_to_all", 4 * 8, 0),
        ("broadcast", 4 * 5, 1),
        ("all_reduce", 4 * 1000, 0),
        ("barrier", 0, 0),
    ]
    for graph in graphs:
        calls = [node.call for node in graph if isinstance(node, CollectiveNode)]
        assert [(call.kind, call.size_bytes, call.root) for call in calls] == expected
        assert all(call.ranks == (0, 1) for call in calls)


def test_messages_have_their_peer_tag_and_size(graphs: list[Graph]) -> None:
    (send,) = (node for node in graphs[0] if isinstance(node, SendNode))
    (receive,) = (node for node in graphs[1] if isinstance(node, ReceiveNode))
    assert (send.peer, send.size_bytes, send.tag) == (1, 28, 3)
    assert (receive.peer, receive.size_bytes, receive.tag) == (0, 28, 3)


def test_products_count_their_operations(graphs: list[Graph]) -> None:
    """Forward, and backward by the weights of both layers and the input of the second."""
    products = [
        node.flops for node in graphs[0] if isinstance(node, ComputeNode) and node.name in PRODUCTS
    ]
    first, second = 2 * 3 * 8 * 16, 2 * 3 * 16 * 4
    assert sorted(products) == sorted([first, second, second, second, first])


def _ancestors(graph: Graph, node_id: int) -> set[int]:
    nodes = {node.id: node for node in graph}
    found: set[int] = set()
    left = list(nodes[node_id].after)
    while left:
        parent = left.pop()
        if parent not in found:
            found.add(parent)
            left += nodes[parent].after
    return found


def test_asynchronous_work_overlaps_what_does_not_need_it(graphs: list[Graph]) -> None:
    graph = graphs[0]
    pending = next(n for n in graph if isinstance(n, CollectiveNode) and n.call.size_bytes == 4000)
    doubled = next(n for n in graph if n.name == "aten::mul_")
    added = next(n for n in graph if n.name == "aten::add_" and n.id > pending.id)
    assert pending.id not in _ancestors(graph, doubled.id)
    assert pending.id in _ancestors(graph, added.id)


def test_wrong_callers_change_nothing(
    observed: list[Path], graphs: list[Graph], tmp_path: Path
) -> None:
    """In 5% of runs the end of asynchronous work, on another thread, pops the observer's stack of
    the main thread, so that an operator names one that has ended as its caller, or none."""
    document = json.loads(observed[0].read_text())
    operators = sorted(node["id"] for node in document["nodes"])
    for index, node in enumerate(document["nodes"]):
        node["ctrl_deps"] = operators[index // 2]
    confused = tmp_path / "confused.json"
    confused.write_text(json.dumps(document))
    assert read_observer(confused, lambda flops, memory_bytes: flops)[0] == graphs[0]


def test_gradients_are_reduced_after_they_are_made(graphs: list[Graph]) -> None:
    graph = graphs[0]
    products = [n.id for n in graph if n.name in PRODUCTS]
    first = next(n for n in graph if isinstance(n, CollectiveNode))
    assert set(products) <= _ancestors(graph, first.id)


def test_the_graph_runs_in_astra_sim(graphs: list[Graph], tmp_path: Path) -> None:
    network = NetworkConfig((Dimension("Switch", WORLD, 12.5, 500.0),))
    files = write_inputs(tmp_path, graphs, network, default_system(1))
    results = simulate(
        read_simulation(files.workload_prefix, files.system, files.network, files.memory)
    )
    assert [result.rank for result in sorted(results, key=lambda r: r.rank)] == [0, 1]
    computed = sum(n.duration_ns for n in graphs[0] if isinstance(n, ComputeNode))
    assert min(result.cycles for result in results) > computed


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.update(schema="1.0.1"), "of schema 1.0.1, which does not name chakra"),
        (lambda d: d.update(traceEvents=[]), "is a trace of Kineto"),
        (lambda d: d.update(nodes={}), "needs a list"),
        (lambda d: d.update(nodes=[]), "no operators"),
        (lambda d: d["nodes"][0].pop("attrs"), "lacks or mistypes a field: KeyError 'attrs'"),
        (lambda d: d["nodes"][0].update(id="first"), "lacks or mistypes a field: ValueError"),
        (
            lambda d: d.update(nodes=[n for n in d["nodes"] if "process_group" not in n["name"]]),
            "has 0 process groups",
        ),
        (
            lambda d: [
                n.update(name="c10d::recv_any_source_")
                for n in d["nodes"]
                if n["name"] == "c10d::barrier"
            ],
            "c10d::recv_any_source_) cannot be understood",
        ),
    ],
    ids=["schema", "kineto", "nodes", "empty", "attrs", "id", "groups", "unknown"],
)
def test_a_bad_file_is_told(change: Any, told: str, observed: list[Path], tmp_path: Path) -> None:
    document = json.loads(observed[0].read_text())
    change(document)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ChakraError) as caught:
        read_observer(path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_without_a_schema_is_read(observed: list[Path], tmp_path: Path) -> None:
    document = json.loads(observed[0].read_text())
    del document["schema"]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document))
    assert read_observer(path) == read_observer(observed[0])


def test_groups_of_the_same_ranks_are_one(observed: list[Path], tmp_path: Path) -> None:
    document = json.loads(observed[0].read_text())
    (node,) = (n for n in document["nodes"] if "process_group" in n["name"])
    groups = json.loads(node["inputs"]["values"][0])
    node["inputs"]["values"] = [json.dumps([*groups, groups[0] | {"ranks": [0, 1]}])]
    path = tmp_path / "two.json"
    path.write_text(json.dumps(document))
    assert read_observer(path) == read_observer(observed[0])


def test_unequal_parts_are_told(observed: list[Path], tmp_path: Path) -> None:
    document = json.loads(observed[0].read_text())
    for node in document["nodes"]:
        if node["name"] == "c10d::alltoall_base_":
            node["inputs"]["values"][4] = [5, 3]
    path = tmp_path / "uneven.json"
    path.write_text(json.dumps(document))
    assert "1 all-to-alls have unequal parts" in read_observer(path)[1][0]
    assert read_observer(observed[0])[1] == ()


@given(st.binary(max_size=100))
def test_garbage_is_told(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("garbage") / "observed.json"
    path.write_bytes(data)
    with pytest.raises(ChakraError):
        read_observer(path)

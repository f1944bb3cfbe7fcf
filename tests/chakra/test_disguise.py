"""Obfuscated traces keep what a replay shows, and synthetic ones follow their corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.astra.files.export import default_system, write_inputs
from analysis.astra.files.network import Dimension, NetworkConfig
from analysis.astra.simulate import simulate
from analysis.astra.simulation import read_simulation
from analysis.chakra.collective_order import ready_orders
from analysis.chakra.disguise.inferred import inferred
from analysis.chakra.disguise.obfuscate import obfuscated
from analysis.chakra.disguise.statistics import Size, learn
from analysis.chakra.files import write_graphs
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, SendNode
from analysis.chakra.sources.from_spec import graphs_of_spec
from analysis.chakra.summary import problems
from collectives.call import CollectiveCall
from tests.session.command import groundwire
from topologies.spec.spec import parse_dict

_LINK = {"rate": "25Gbps", "delay": "1us"}


def _graphs(workload: dict[str, Any]) -> list[Graph]:
    fabric = {"kind": "flat", "hosts": workload["ranks"], "link": _LINK}
    return graphs_of_spec(parse_dict({"name": "x", "fabric": fabric, "workload": workload}))


def _dlrm(ranks: int) -> list[Graph]:
    return _graphs(
        {"kind": "dlrm", "ranks": ranks, "batch_size": 960 // ranks, "sparse_features": 60}
    )


def _transformer(data: int, tensor: int) -> list[Graph]:
    degrees = {"data": data, "tensor": tensor}
    about = {"layers": 2, "hidden": 768, "microbatches": 1}
    return _graphs({"kind": "training", "ranks": data * tensor, "parallelism": degrees} | about)


def _cycles(folder: Path, graphs: list[Graph]) -> list[tuple[int, int]]:
    """Cycles and exposed communication of ASTRA-sim's simulation of a workload."""
    network = NetworkConfig((Dimension("Switch", len(graphs), 50.0, 500.0),))
    inputs = write_inputs(folder, graphs, network, default_system(1))
    read = read_simulation(
        inputs.workload_prefix, inputs.system, inputs.network, inputs.memory, inputs.groups
    )
    return [(result.cycles, result.exposed_cycles) for result in simulate(read)]


def test_nothing_of_names_and_shapes_is_left(tmp_path: Path) -> None:
    write_graphs(tmp_path / "t", _transformer(2, 2))
    done = groundwire("trace", "obfuscate", tmp_path / "t", "--out", tmp_path / "o", "--json")
    assert done.returncode == 0
    told = json.loads(done.stdout)["inferred"]
    assert any("2 groups of 2 ranks (neighbours)" in sentence for sentence in told)
    data = (tmp_path / "o.0.et").read_bytes()
    words = [b"layer", b"gradient", b"attention", b"optimizer", b"forward", b"embedding"]
    assert any(word in (tmp_path / "t.0.et").read_bytes() for word in words)
    assert not any(word in data for word in words)


def test_messages_keep_their_ends() -> None:
    pipeline = {"kind": "training", "ranks": 4, "parallelism": {"data": 2, "pipeline": 2}}
    graphs = obfuscated(_graphs(pipeline | {"layers": 2, "hidden": 64}))
    assert problems(graphs) == []
    sent = [node for graph in graphs for node in graph if isinstance(node, SendNode)]
    pairs = [
        node.call for graph in graphs for node in graph
        if isinstance(node, CollectiveNode) and node.call.kind == "send_recv"
    ]  # fmt: skip
    assert sent or pairs


durations = st.integers(0, 1000)


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """A rank of one line of computation with collectives beside it."""
    nodes: list[ComputeNode | CollectiveNode] = []
    line: tuple[int, ...] = ()
    under_way: list[int] = []
    for id in range(draw(st.integers(1, 14))):
        if draw(st.booleans()):
            waited = draw(st.lists(st.sampled_from(under_way), max_size=2)) if under_way else []
            after = (*line, *dict.fromkeys(waited))
            nodes.append(
                ComputeNode(id=id, name=f"n{id}", after=after, duration_ns=draw(durations))
            )
            line = (id,)
        else:
            call = CollectiveCall("all_reduce", draw(st.integers(1, 9)) * 64, (0, 1))
            nodes.append(CollectiveNode(id=id, name=f"n{id}", after=line, duration_ns=7, call=call))
            under_way.append(id)
    return tuple(nodes)


def _ends(graph: Graph) -> tuple[int, list[int]]:
    """When all is over, and when each collective begins, by the order in which they do."""
    ends: dict[int, int] = {}
    begins = []
    for id in ready_orders([graph])[0]:
        node = next(node for node in graph if node.id == id)
        at = max((ends[parent] for parent in node.after), default=0)
        ends[id] = at + node.duration_ns
        if isinstance(node, CollectiveNode):
            begins.append(at)
    return max(ends.values()), sorted(begins)


@given(programs())
def test_timing_is_that_of_the_original(graph: Graph) -> None:
    (made, _) = obfuscated((graph, graph))
    assert _ends(made) == _ends(graph)
    assert sum(n.duration_ns for n in made) == sum(n.duration_ns for n in graph)
    assert {node.name for node in made} <= {"compute", "all_reduce"}
    assert obfuscated((made, made)) == (made, made)


def test_a_simulation_of_an_obfuscated_model_is_that_of_the_model(tmp_path: Path) -> None:
    graphs = _transformer(2, 2)
    made = list(obfuscated(graphs))
    assert sum(map(len, made)) < sum(map(len, graphs))
    assert _cycles(tmp_path / "a", graphs) == _cycles(tmp_path / "b", made)


@pytest.mark.parametrize("ranks", [5, 10, 12])
def test_a_synthetic_dlrm_takes_what_the_model_takes(tmp_path: Path, ranks: int) -> None:
    """Its batch is divided among the ranks, so that sizes and times depend on how many there are;
    the corpus has none of these."""
    model = learn({str(n): _dlrm(n) for n in (2, 3, 4, 6, 8)})
    made = list(model.draw(ranks, 1, seed=1))
    assert problems(made) == []
    _within(_cycles(tmp_path / "a", _dlrm(ranks)), _cycles(tmp_path / "b", made))


@pytest.mark.parametrize("size", [(5, 2), (3, 3), (4, 4)])
def test_a_synthetic_transformer_takes_what_the_model_takes(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    corpus = [(2, 2), (3, 2), (4, 2), (2, 4), (3, 4)]
    model = learn({str(each): _transformer(*each) for each in corpus})
    assert model.sizes[0] == Size(4, 2) and model.inner is None
    made = list(model.draw(size[0] * size[1], size[1], seed=1))
    _within(_cycles(tmp_path / "a", _transformer(*size)), _cycles(tmp_path / "b", made))


def _within(real: list[tuple[int, int]], made: list[tuple[int, int]]) -> None:
    for at in (0, 1):
        longest = max(each[at] for each in real)
        assert abs(max(each[at] for each in made) / longest - 1) < 0.05


def test_one_seed_makes_one_trace() -> None:
    uneven = [
        [(ComputeNode(id=0, name="c", duration_ns=1000 + 37 * rank * n),) for rank in range(n)]
        for n in (2, 3, 4)
    ]
    model = learn({str(n): graphs for n, graphs in enumerate(uneven)})
    assert model.draw(6, 1, 1) == model.draw(6, 1, 1) != model.draw(6, 1, 2)


def test_what_is_not_learned_is_refused_by_its_step() -> None:
    call = CollectiveCall("all_reduce", 64, (0, 2))
    odd = [(CollectiveNode(id=0, name="a", call=call),) if r in (0, 2) else
           (ComputeNode(id=0, name="c", duration_ns=1),) for r in range(3)]  # fmt: skip
    with pytest.raises(ValueError, match=r"odd: rank 1: step 0: found compute"):
        learn({"odd": odd})
    message = [(SendNode(id=0, name="s", peer=1, size_bytes=4),)] * 2
    with pytest.raises(ValueError, match="m: rank 0: step 0 is a message"):
        learn({"m": message})
    with pytest.raises(ValueError, match="expected a multiple of inner = 4"):
        learn({"t": _dlrm(2)}).draw(6, 4, 1)


def test_the_report_has_figures() -> None:
    sentences = inferred(_transformer(2, 2))
    assert sentences[0] == "It runs on 4 ranks."
    assert any("parameters at 32 bits" in sentence for sentence in sentences)
    assert any("TFLOP" in sentence for sentence in sentences)

"""Traces as other programs write them: what is read, with which notes, and what is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.astra.files.export import default_system
from analysis.astra.files.network import Dimension, NetworkConfig, render_network
from analysis.astra.files.system import render_system
from analysis.astra.simulate import simulate
from analysis.astra.simulation import read_simulation
from analysis.chakra.check import check_trace
from analysis.chakra.codec import write_trace
from analysis.chakra.collective_order import collective_orders, ready_orders
from analysis.chakra.errors import ChakraError
from analysis.chakra.foreign import as_feeder_reads
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, ReceiveNode, SendNode
from analysis.chakra.schema import CollectiveType, NodeType
from analysis.chakra.sources.read import read_workload
from analysis.chakra.summary import problems, summarize
from analysis.chakra.trace import Attribute, TensorInfo, Trace, TraceNode
from analysis.exporters.replay import replay_files, rounding_notes
from collectives.call import CollectiveCall
from groundwire.pipeline import run
from tests.session.command import groundwire
from topologies.spec.compute_section import ComputeSpec

_ALL_REDUCE = int(CollectiveType.ALL_REDUCE)
_CALL = CollectiveCall("all_reduce", 65536, (0, 1))


def _node(
    id: int,
    type: NodeType,
    after: Iterable[int] = (),
    *,
    micros: int = 0,
    callers: Iterable[int] = (),
    name: str = "",
    inputs: str | None = None,
    **attributes: int | str | bool,
) -> TraceNode:
    kinds = {bool: "bool_val", int: "int64_val", str: "string_val"}
    return TraceNode(
        id,
        name or f"n{id}",
        type,
        tuple(callers),
        tuple(after),
        duration_micros=micros,
        inputs=None if inputs is None else TensorInfo(inputs),
        attributes=tuple(Attribute(n, kinds[v.__class__], v) for n, v in attributes.items()),
    )


def _all_reduce(
    id: int, size: int = 65536, after: Iterable[int] = (), group: str = ""
) -> TraceNode:
    return _node(
        id, NodeType.COMM_COLL, after, comm_type=_ALL_REDUCE, comm_size=size, pg_name=group
    )


def _write(
    folder: Path, nodes: Callable[[int], Iterable[TraceNode]], ranks: int = 2, packed: bool = False
) -> Path:
    for rank in range(ranks):
        path = folder / f"t.{rank}.et"
        write_trace(path, Trace(tuple(nodes(rank))))
        if packed:
            (folder / f"t.{rank}.et.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    return folder / "t"


def _refused(folder: Path, nodes: Callable[[int], Iterable[TraceNode]]) -> str:
    return " ".join(problems(read_workload(_write(folder, nodes)).graphs))


def test_callers_that_the_converter_left_out_are_no_dependencies(tmp_path: Path) -> None:
    """The reader follows data_deps alone where some ctrl_deps lead nowhere, as Chakra's feeder
    does."""
    prefix = _write(
        tmp_path,
        lambda rank: [
            _node(1, NodeType.COMP, micros=5, callers=[0], is_cpu_op=True),
            _node(2, NodeType.COMP, micros=7, callers=[1]),
            _all_reduce(3, after=[1]),
        ],
    )
    read = read_workload(prefix)
    assert [node.after for node in read.graphs[0]] == [(), (), (1,)]
    (note,) = read.notes
    assert note.startswith("all ranks: 1 of its ctrl_deps name nodes that are not there")
    assert problems(read.graphs) == []
    with pytest.raises(ChakraError, match="node 2 depends on node 9"):
        read_workload(_write(tmp_path, lambda rank: [_node(2, NodeType.COMP, [9])]))


def test_the_hosts_side_of_a_collective_is_computation(tmp_path: Path) -> None:
    launch = _node(1, NodeType.COMM_COLL, micros=4, is_cpu_op=True, name="nccl:all_reduce")
    read = read_workload(_write(tmp_path, lambda rank: [launch, _all_reduce(2, after=[1])]))
    first, second = read.graphs[0]
    assert isinstance(first, ComputeNode) and isinstance(second, CollectiveNode)
    assert (first.duration_ns, first.on_host) == (4000, True)
    assert "1 nodes of type COMM_COLL on the host have no comm_type" in read.notes[0]


def test_host_and_device_compute_side_by_side() -> None:
    """A kernel of 10 and the host's 4 begin at once; what follows the host's is not kept up."""
    graph: Graph = (
        ComputeNode(id=1, name="kernel", duration_ns=10),
        ComputeNode(id=2, name="host", duration_ns=4, on_host=True),
        CollectiveNode(id=3, name="a", after=(1,), call=_CALL),
        CollectiveNode(id=4, name="b", after=(2,), call=_CALL),
    )
    assert ready_orders([graph]) == [[1, 2, 4, 3]]


def test_what_waits_for_the_device_is_followed_when_nothing_else_goes_on() -> None:
    """Two products are ready at once, nothing waits for the first; the second has a collective."""
    graph: Graph = (
        ComputeNode(id=1, name="first"),
        ComputeNode(id=2, name="second"),
        CollectiveNode(id=3, name="of the second", after=(2,), call=_CALL),
    )
    assert ready_orders([graph]) == [[1, 2, 3]]


def test_a_gradient_is_waited_for_though_its_receive_waits_for_nothing() -> None:
    """Two stages, as the symbolic tensor graph of ASTRA-sim writes them: a receive has no
    dependencies. The backward collective, of the smaller id, is behind the forward one all the
    same, as the other stage sends what it has computed of the first."""

    def stage(first: bool, ranks: tuple[int, int], peer: int) -> Graph:
        call = CollectiveCall("all_reduce", 4096, ranks)
        there, back = (SendNode, ReceiveNode) if first else (ReceiveNode, SendNode)
        return (
            CollectiveNode(id=1, name="backward", after=(4,) if first else (3,), call=call),
            CollectiveNode(id=2, name="forward", after=() if first else (3,), call=call),
            there(id=3, name="activations", after=(2,) if first else (), peer=peer, size_bytes=64),
            back(id=4, name="gradients", after=() if first else (1,), peer=peer, size_bytes=64),
        )

    graphs = [
        stage(first, ranks, peer)
        for first, ranks, peer in (
            (True, (0, 1), 2), (True, (0, 1), 3), (False, (2, 3), 0), (False, (2, 3), 1),
        )
    ]  # fmt: skip
    assert problems(graphs) == []
    assert collective_orders(graphs) == [{2: 0, 1: 1}] * 2 + [{1: 0, 2: 1}] * 2


def test_collectives_begin_as_they_become_ready(tmp_path: Path) -> None:
    """An all-reduce (node 2), computation (3), then a second one, whose id is smaller (1)."""
    prefix = _write(
        tmp_path,
        lambda rank: [
            _all_reduce(1, after=[3]), _all_reduce(2), _node(3, NodeType.COMP, [2], micros=5),
        ],
    )  # fmt: skip
    graphs = read_workload(prefix).graphs
    assert problems(graphs) == []
    assert collective_orders(graphs) == [{2: 0, 1: 1}] * 2
    lines = [json.loads(line) for line in replay_files(graphs)["001.jsonl"].splitlines()]
    assert {line["id"]: line.get("place") for line in lines} == {1: 1, 2: 0, 3: None}
    network = NetworkConfig((Dimension("Switch", 2, 50.0, 500.0),))
    (tmp_path / "network.yml").write_text(render_network(network))
    (tmp_path / "system.json").write_text(render_system(default_system(1, splits=4)))
    traces = read_simulation(prefix, tmp_path / "system.json", tmp_path / "network.yml")
    assert {result.cycles for result in simulate(traces)} == {23_792}


@given(st.permutations(range(6)), st.lists(st.integers(0, 50), min_size=6, max_size=6))
def test_ranks_whose_ids_differ_begin_alike(ids: list[int], durations: list[int]) -> None:
    """A chain of computations, each with a collective of its own size behind it."""

    def chain(numbers: list[int]) -> Graph:
        nodes: list[ComputeNode | CollectiveNode] = []
        for place, number in enumerate(numbers):
            after = (2 * numbers[place - 1],) if place else ()
            nodes.append(
                ComputeNode(id=2 * number, name="c", after=after, duration_ns=durations[place] + 1)
            )
            call = CollectiveCall("all_reduce", 4 * (place + 1), (0, 1))
            nodes.append(
                CollectiveNode(id=2 * number + 1, name="r", after=(2 * number,), call=call)
            )
        return tuple(nodes)

    graphs = [chain(list(range(6))), chain(ids)]
    assert problems(graphs) == []
    orders = collective_orders(graphs)
    for order, numbers in zip(orders, (list(range(6)), ids), strict=True):
        assert [order[2 * number + 1] for number in numbers] == list(range(6))


def test_groups_come_from_astra_sims_file_or_from_pytorchs_list(tmp_path: Path) -> None:
    def named(name: str) -> Callable[[int], list[TraceNode]]:
        return lambda rank: [_all_reduce(1, group=name)]

    prefix = _write(tmp_path, named("7"))
    groups = tmp_path / "groups.json"
    groups.write_text('{"7": [1, 0]}')
    with pytest.raises(ChakraError, match=r"t\.0\.et: node 1: pg_name: .* group 7: .*--groups"):
        read_workload(prefix)
    (node,) = read_workload(prefix, groups=groups).graphs[0]
    assert isinstance(node, CollectiveNode) and node.call.ranks == (1, 0)
    done = groundwire("trace", "import", prefix, "--groups", groups, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["groups"] == {"1": [1, 0]}
    groups.write_text('{"7": [1, 9]}')
    with pytest.raises(ChakraError, match=r"groups\.json: 7: found rank 9"):
        read_workload(prefix, groups=groups)
    text = json.dumps([{"pg_name": "tp", "ranks": [1]}, {"pg_name": "0", "ranks": []}])
    listed = _node(0, NodeType.METADATA, name="## process_group:init ##", inputs=repr([text]))
    whole = _write(
        tmp_path,
        lambda rank: (
            [listed, _all_reduce(1, group="0")] + ([_all_reduce(2, group="tp")] if rank else [])
        ),
    )
    calls = [
        [node.call.ranks for node in graph if isinstance(node, CollectiveNode)]
        for graph in read_workload(whole).graphs
    ]
    assert calls == [[(0, 1)], [(0, 1), (1,)]]


def test_operations_without_a_duration_take_what_the_device_takes(tmp_path: Path) -> None:
    """As in traces of the symbolic tensor graph generator. 19.5 GFLOP at 19.5 TFLOPS are 1 ms."""
    product = _node(1, NodeType.COMP, num_ops=195 * 10**8, tensor_size=10**6)
    prefix = _write(tmp_path, lambda rank: [product, _all_reduce(2, after=[1])])
    read = read_workload(prefix, ComputeSpec.model_validate({"device": "a100"}))
    assert read.graphs[1][0].duration_ns == 10**6
    assert read.notes == (
        "all ranks: 1 computations with num_ops have no duration, and take what the roofline of "
        "a100 says",
    )
    assert "take no time" in read_workload(prefix).notes[0]
    done = groundwire("trace", "import", prefix, "--device", "h100")
    assert done.returncode == 0 and "roofline of h100" in " ".join(done.stderr.split())
    assert "busiest rank: 291.0 us" in done.stdout


@pytest.mark.parametrize(
    ("node", "told"),
    [
        (lambda rank: _all_reduce(1, 1 << 40), "comm_size is 1,099,511,627,776 bytes, allowed"),
        (
            lambda rank: _node(1, NodeType.COMM_SEND, comm_dst=rank, comm_size=8, comm_tag=0),
            "comm_dst is 0, its own rank",
        ),
        (
            lambda rank: _node(
                1, NodeType.COMM_RECV, comm_src=1 - rank, comm_size=8, comm_tag=2**40
            ),
            "comm_tag is 1099511627776, allowed 0 to 2147483647",
        ),
        (
            lambda rank: _node(1, NodeType.COMM_SEND, comm_dst=1 - rank, comm_size=0, comm_tag=0),
            "comm_size is 0, expected at least 1",
        ),
        (lambda rank: _node(1, NodeType.COMP, micros=86401 * 10**6), "duration is 86,401,000,"),
    ],
    ids=["huge", "to itself", "tag", "empty message", "duration"],
)
def test_what_no_rank_can_do_is_refused_by_its_field(
    tmp_path: Path, node: Callable[[int], TraceNode], told: str
) -> None:
    assert told in _refused(tmp_path, lambda rank: [node(rank)])


def test_rounding_is_told(tmp_path: Path) -> None:
    graphs = read_workload(
        _write(tmp_path, lambda rank: [_all_reduce(1, 1), _all_reduce(2, 1000)], ranks=3)
    ).graphs
    (note,) = rounding_notes(graphs)
    (tmp_path / "empty").mkdir()
    empty = read_workload(_write(tmp_path / "empty", lambda rank: [_all_reduce(1, 0)])).graphs
    assert problems(empty) == []
    assert "all_reduce of 0 bytes, to 4" in rounding_notes(empty)[0]
    assert json.loads(replay_files(empty)["000.jsonl"])["size_bytes"] == 1
    assert note.startswith("1 of 2 sizes are no whole elements")
    assert note.endswith("most all_reduce of 1 bytes, to 4")
    assert json.loads(replay_files(graphs, ["a"])["notes.json"]) == ["a", note]


def test_packed_traces_are_unpacked(tmp_path: Path) -> None:
    prefix = _write(tmp_path, lambda rank: [_all_reduce(1)], packed=True)
    assert problems(read_workload(prefix).graphs) == []
    (tmp_path / "t.1.et.gz").write_bytes(gzip.compress(b"x" * 100)[:-9])
    with pytest.raises(ChakraError, match=r"t\.1\.et\.gz: cannot be unpacked by gzip"):
        read_workload(prefix)


@pytest.mark.parametrize("ranks", [1, 4])
def test_as_many_ranks_as_traces_are_asked_for(tmp_path: Path, ranks: int) -> None:
    _write(tmp_path, lambda rank: [_all_reduce(1)], ranks=3)
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"fabric: {{kind: flat, hosts: 4}}\nworkload: {{kind: chakra, path: t, ranks: {ranks}}}\n"
    )
    with pytest.raises(ChakraError, match=f"traces of 3 ranks, workload.ranks is {ranks}"):
        run(spec, kernel="virtual", out=tmp_path / "out")


def test_a_text_of_no_known_format_is_no_broken_trace(tmp_path: Path) -> None:
    """AICB's times of layers, for one, are no workload."""
    path = tmp_path / "Example.txt"
    path.write_text("train_iter:10\nEmb:\n    time_gpu_max: 857\n")
    with pytest.raises(ChakraError, match="is a text of none of the formats that are read"):
        read_workload(path)


def test_a_file_of_zeros_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "zeros.et").write_bytes(gzip.compress(bytes(50 << 20)))
    with pytest.raises(ChakraError, match="byte 2: node id 0 is used twice"):
        read_workload(tmp_path / "zeros.et")


def test_a_collective_is_counted_once_where_not_all_ranks_are_there(tmp_path: Path) -> None:
    _write(tmp_path, lambda rank: [_all_reduce(n) for n in range(3)])
    text = '{"1": [0, 1, 2, 3]}'
    (tmp_path / "groups.json").write_text(text)
    write_trace(tmp_path / "one.et", Trace(tuple(_all_reduce(n, group="1") for n in range(3))))
    one = read_workload(tmp_path / "one.et", groups=tmp_path / "groups.json")
    assert summarize(one.graphs).collectives == {("all_reduce", 65536, 4): 3}
    assert summarize(read_workload(tmp_path / "t").graphs).collectives == {
        ("all_reduce", 65536, 2): 3
    }


def test_device_nodes_come_in_the_order_of_their_streams(tmp_path: Path) -> None:
    """As in mlcommons/chakra#215: kernels depend on their launches alone, so that the all-reduce
    could begin before what it reduces is computed."""

    def device(id: int, launch: int, stream: int, micros: int) -> TraceNode:
        return _node(id, NodeType.COMP, [launch], micros=micros, is_cpu_op=False, stream=stream)

    def nodes(rank: int) -> list[TraceNode]:
        launches = [
            _node(id, NodeType.COMP, [id - 2] if id > 1 else [], micros=1, is_cpu_op=True)
            for id in (1, 3, 5, 7)
        ]
        reduce = replace(_all_reduce(6, after=[5]), attributes=(
            *_all_reduce(6).attributes,
            Attribute("is_cpu_op", "bool_val", False),
            Attribute("stream", "int64_val", 20),
        ))  # fmt: skip
        return [*launches, device(2, 1, 7, 100), device(4, 3, 7, 200), reduce, device(8, 7, 7, 50)]

    read = read_workload(_write(tmp_path, nodes))
    assert "3 dependencies of device nodes" in read.notes[0] and "#215" in read.notes[0]
    after = {node.id: set(node.after) for node in read.graphs[0]}
    assert (after[4], after[6], after[8]) == ({3, 2}, {5, 4}, {7, 4})
    assert problems(read.graphs) == []


@given(st.data())
def test_stream_order_never_leads_in_a_circle(data: st.DataObject) -> None:
    """Whatever a trace's own dependencies and ids, all its nodes can still run."""
    count = data.draw(st.integers(1, 12))
    ids = data.draw(st.permutations(range(count)))
    nodes = []
    for place, id in enumerate(ids):
        parents = data.draw(st.lists(st.sampled_from(ids[:place]), max_size=3)) if place else []
        on_host, stream = data.draw(st.booleans()), data.draw(st.integers(0, 2))
        after = dict.fromkeys(parents)
        nodes.append(_node(id, NodeType.COMP, after, is_cpu_op=on_host, stream=stream))
    nodes = [replace(n, start_micros=data.draw(st.integers(0, 3))) for n in nodes]
    trace, _ = as_feeder_reads(Trace(tuple(nodes)))
    check_trace(trace)
    again, notes = as_feeder_reads(trace)
    assert again == trace and notes == ()

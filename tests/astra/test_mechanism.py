"""Properties of the simulation whatever the numbers: closed forms, symmetry, refusals."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analysis.astra.errors import AstraRefused, AstraStalled
from analysis.astra.files.memory import MemoryConfig
from analysis.astra.files.network import Dimension, NetworkConfig
from analysis.astra.files.system import COLLECTIVES, Implementation, SystemConfig
from analysis.astra.files.task import Task
from analysis.astra.lockstep import can_run_in_lockstep
from analysis.astra.network.memory_bus import BusParameters
from analysis.astra.simulate import simulate
from analysis.astra.simulation import Simulation
from analysis.chakra.group_file import CommunicatorGroup
from analysis.chakra.schema import CollectiveType, NodeType

KINDS = {
    "all-reduce": CollectiveType.ALL_REDUCE,
    "all-gather": CollectiveType.ALL_GATHER,
    "reduce-scatter": CollectiveType.REDUCE_SCATTER,
    "all-to-all": CollectiveType.ALL_TO_ALL,
}


def collective(kind: str, size_bytes: int, task_id: int = 0, **fields: Any) -> Task:
    parents = frozenset(fields.pop("parents", ()))
    return Task(task_id, NodeType.COMM_COLL, False, parents, 1, KINDS[kind], size_bytes, **fields)


def compute(duration_ns: int, task_id: int, *parents: int) -> Task:
    return Task(task_id, NodeType.COMP, False, frozenset(parents), duration_ns)


def build(
    kind: str,
    algorithm: str,
    size_bytes: int,
    *dimensions: Dimension,
    backend: str = "unaware",
    splits: int = 1,
    **keys: Any,
) -> Simulation:
    implementations = {name: (Implementation(algorithm),) * len(dimensions) for name in COLLECTIVES}
    network = NetworkConfig(dimensions)
    return Simulation(
        network,
        SystemConfig(implementations, splits, local_mem_bw_gbps=1600, **keys),
        [(collective(kind, size_bytes),)] * prod(d.npus for d in dimensions),
        backend=backend,
    )


def slowest(simulation: Simulation) -> int:
    return max(result.cycles for result in simulate(simulation))


def test_the_golden_value_of_astra_sims_documentation() -> None:
    ring = Dimension("Ring", 16, 50.0, 500.0)
    assert slowest(build("all-gather", "ring", 1 << 20, ring, splits=4)) == 323_560


@given(
    topology=st.sampled_from(["Ring", "FullyConnected", "Switch"]),
    npus=st.integers(3, 12),
    kind=st.sampled_from(["all-gather", "reduce-scatter", "all-reduce"]),
    backend=st.sampled_from(["unaware", "aware"]),
    message=st.integers(1, 1 << 22),
    splits=st.integers(1, 4),
    bandwidth=st.sampled_from([12.5, 50.0, 333.0]),
    latency=st.sampled_from([0.0, 25.5, 500.0]),
    endpoint=st.integers(1, 50),
)
def test_ring_collectives_have_a_closed_form(
    topology: str,
    npus: int,
    kind: str,
    backend: str,
    message: int,
    splits: int,
    bandwidth: float,
    latency: float,
    endpoint: int,
) -> None:
    """Splits one after the other; each is a chain of steps, the first packet crosses the memory
    bus once more than messages are sent, and reduced ones wait for memory three times."""
    dimension = Dimension(topology, npus, bandwidth, latency)
    size = splits * message * (1 if kind == "all-gather" else npus)
    simulation = build(
        kind, "ring", size, dimension, backend=backend, splits=splits, endpoint_delay_ns=endpoint
    )
    steps = (npus - 1) * (2 if kind == "all-reduce" else 1)
    serialisation = message / dimension.bytes_per_ns
    if topology != "Switch":
        way = int(latency + serialisation)
    elif backend == "unaware":
        way = int(2 * latency + serialisation)
    else:
        way = 2 * int(latency + serialisation)
    reductions = 0 if kind == "all-gather" else npus - 1
    reduction = reductions * 3 * int(message / 1600e9 * 1e9)
    expected = splits * (steps * (way + endpoint) + endpoint + reduction)
    assert slowest(simulation) == expected
    assert slowest(replace(simulation, system=simulation.system)) == expected


@settings(deadline=None)
@given(
    topology=st.sampled_from(["Ring", "FullyConnected", "Switch"]),
    npus=st.integers(3, 9),
    kinds=st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3),
    algorithm=st.sampled_from(["ring", "direct"]),
    backend=st.sampled_from(["unaware", "aware"]),
    size=st.integers(1, 1 << 24),
    splits=st.integers(1, 5),
    bandwidth=st.sampled_from([3.0, 50.0, 900.0]),
    latency=st.sampled_from([0.0, 20.0, 500.0]),
    memory=st.sampled_from([5.0, 1600.0]),
)
def test_one_rank_stands_for_all(
    topology: str,
    npus: int,
    kinds: list[str],
    algorithm: str,
    backend: str,
    size: int,
    splits: int,
    bandwidth: float,
    latency: float,
    memory: float,
) -> None:
    """The short cut gives the full simulation's results, in its order."""
    simulation = build(
        "all-reduce",
        algorithm,
        1,
        Dimension(topology, npus, bandwidth, latency),
        backend=backend,
        splits=splits,
    )
    tasks = tuple(collective(kind, max(size, splits), index) for index, kind in enumerate(kinds))
    system = replace(simulation.system, local_mem_bw_gbps=memory)
    simulation = replace(simulation, tasks=[tasks] * npus, system=system)
    assume(can_run_in_lockstep(simulation))
    assert simulate(simulation) == simulate(simulation, short_cuts=False)


@pytest.mark.parametrize("backend", ["unaware", "aware"])
@given(size=st.integers(64, 1 << 26), faster=st.floats(1.0, 8.0))
@settings(deadline=None, max_examples=25)
def test_more_bandwidth_never_hurts_and_more_bytes_never_help(
    backend: str, size: int, faster: float
) -> None:
    def run(size_bytes: int, bandwidth: float) -> int:
        ring = Dimension("Ring", 6, bandwidth, 500.0)
        return slowest(build("all-to-all", "direct", size_bytes, ring, backend=backend))

    assert run(size, 50.0) >= run(size, 50.0 * faster)
    assert run(2 * size, 50.0) >= run(size, 50.0)


def test_computation_hides_communication() -> None:
    ring = Dimension("Ring", 4, 50.0, 500.0)
    simulation = build("all-reduce", "ring", 1 << 20, ring)
    alone = slowest(simulation)
    both = (collective("all-reduce", 1 << 20, 0), compute(2 * alone, 1))
    for result in simulate(replace(simulation, tasks=[both] * 4)):
        assert (result.cycles, result.exposed_cycles) == (2 * alone, 0)
    after = (collective("all-reduce", 1 << 20, 0), compute(2 * alone, 1, 0))
    for result in simulate(replace(simulation, tasks=[after] * 4)):
        assert (result.cycles, result.exposed_cycles) == (3 * alone, alone)


@pytest.mark.parametrize(
    ("ops", "tensor_bytes", "expected_ns"),
    [
        (2 * 10**6, 10**3, 2_000),  # 1 TFLOPS binds
        (10**6, 16 * 10**6, 10_000),  # 1600 GB/s bind
        (10**9, 0, 0),  # nothing to do: skipped
    ],
)
def test_the_roofline(ops: int, tensor_bytes: int, expected_ns: int) -> None:
    switch = Dimension("Switch", 2, 50.0, 500.0)
    base = build("all-reduce", "ring", 1, switch, roofline_enabled=True, peak_perf_tflops=1.0)
    first = compute(7, 0)
    task = replace(first, num_ops=ops, tensor_bytes=tensor_bytes)
    tasks = (compute_on_cpu(5, 9), replace(task, parents=frozenset((9,))))
    for result in simulate(replace(base, tasks=[tasks] * 2)):
        # CPU work is replayed, and is not the rank's own computation.
        assert (result.cycles, result.exposed_cycles) == (5 + expected_ns, 5)


def compute_on_cpu(duration_ns: int, task_id: int) -> Task:
    return replace(compute(duration_ns, task_id), on_cpu=True)


def test_computation_without_operations_is_refused() -> None:
    switch = Dimension("Switch", 2, 50.0, 500.0)
    base = build("all-reduce", "ring", 1, switch, roofline_enabled=True)
    for fields, told in (
        ({}, "needs num_ops"),
        ({"num_ops": 0, "tensor_bytes": 8}, "num_ops is 0"),
    ):
        task = replace(compute(7, 0), **fields)  # type: ignore[arg-type]
        with pytest.raises(AstraRefused, match=told):
            simulate(replace(base, tasks=[(task,)] * 2))


def test_a_send_takes_the_networks_time_and_a_late_receive_none() -> None:
    switch = Dimension("Switch", 2, 50.0, 500.0)
    base = build("all-reduce", "ring", 1, switch)
    message: dict[str, Any] = {"size_bytes": 1 << 20, "tag": 3}
    send = Task(0, NodeType.COMM_SEND, False, frozenset(), 1, peer=1, **message)
    for wait_ns in (1_000, 100_000):
        receive = Task(0, NodeType.COMM_RECV, False, frozenset((1,)), 1, peer=0, **message)
        tasks = [(send,), (receive, compute(wait_ns, 1))]
        cycles = {r.rank: r.cycles for r in simulate(replace(base, tasks=tasks))}
        way = int(1000 + (1 << 20) / switch.bytes_per_ns)
        assert cycles == {0: way, 1: max(way, wait_ns)}


def test_a_groups_ring_follows_the_files_order() -> None:
    """Neighbours in the group's order: next to each other is one hop, across the ring is two."""
    ring = Dimension("Ring", 4, 50.0, 500.0)
    task = collective("all-gather", 1 << 20, group="1")
    idle = (compute(1, 0),)

    def run(order: tuple[int, ...]) -> int:
        simulation = replace(
            build("all-gather", "ring", 1, ring),
            tasks=[(task,) if rank in order else idle for rank in range(4)],
            groups={1: CommunicatorGroup(1, order)},
        )
        return slowest(simulation)

    message = (1 << 20) / ring.bytes_per_ns
    assert run((0, 1)) == int(500 + message) + 20
    assert run((0, 2)) == int(1000 + message) + 20


def test_the_scheduling_policy_cannot_matter() -> None:
    """A rank has one communication node under way at a time, as in the original: streams of
    different priority never wait in one queue."""
    dimensions = (Dimension("Ring", 4, 200.0, 100.0), Dimension("Switch", 4, 50.0, 500.0))
    base = build("all-reduce", "ring", 1, *dimensions, splits=5, active_chunks_per_dimension=2)
    tasks = tuple(collective(kind, 1 << 20, index) for index, kind in enumerate(KINDS))
    cycles = {
        policy: slowest(
            replace(
                base,
                tasks=[tasks] * 16,
                system=replace(base.system, scheduling_policy=policy),
            )
        )
        for policy in ("LIFO", "FIFO", "EXPLICIT")
    }
    assert len(set(cycles.values())) == 1


def test_transfers_queue_on_a_shared_bus() -> None:
    """The first of four packets crosses to memory, two cross to the adaptor and back, the last
    stays."""
    switch = Dimension("Switch", 4, 50.0, 500.0)

    def run(algorithm: str, **bus: float) -> int:
        base = build("all-gather", algorithm, 1 << 20, switch)
        parameters = BusParameters(overhead_ns=1, **bus)  # type: ignore[arg-type]
        return slowest(replace(base, system=replace(base.system, shared_bus=parameters)))

    idle = run("ring")
    body = int(((1 << 20) - 1) * 0.5)
    assert run("ring", gap_per_byte_ns=0.5) - idle == (1 + 2 + 2 + 1) * body
    assert run("ring", latency_ns=100) > idle
    # The gap keeps transfers apart that leave one after the other.
    assert run("direct", gap_ns=10**6) > run("direct") + 2 * 10**6


def test_remote_memory_serves_one_at_a_time() -> None:
    switch = Dimension("Switch", 4, 50.0, 500.0)
    load = Task(0, NodeType.MEM_LOAD, False, frozenset(), 1, tensor_bytes=64_000)
    base = replace(build("all-reduce", "ring", 1, switch), tasks=[(load,)] * 4)

    def run(memory: MemoryConfig) -> list[int]:
        return sorted(r.cycles for r in simulate(replace(base, memory=memory)))

    alone = 100 + 1000
    assert run(MemoryConfig("PER_NPU_MEMORY_EXPANSION", 100, 64)) == [alone] * 4
    assert run(MemoryConfig("MEMORY_POOL", 100, 64)) == [alone * n for n in (1, 2, 3, 4)]
    per_node = MemoryConfig("PER_NODE_MEMORY_EXPANSION", 100, 64, nodes=2, npus_per_node=2)
    assert run(per_node) == [alone, alone, 2 * alone, 2 * alone]
    with pytest.raises(AstraRefused, match="NO_MEMORY_EXPANSION"):
        simulate(base)


@pytest.mark.parametrize(
    ("simulation", "reason"),
    [
        (
            build("all-to-all", "halvingDoubling", 4096, Dimension("Switch", 4, 50.0, 1.0)),
            "no such algorithm",
        ),
        (
            build("all-reduce", "doubleBinaryTree", 4096, Dimension("Switch", 6, 50.0, 1.0)),
            "power of two",
        ),
        (
            build(
                "all-reduce",
                "ring",
                4096,
                *(Dimension("Ring", 4, 50.0, 1.0),) * 2,
                backend="aware",
            ),
            "one dimension",
        ),
        (
            build("all-reduce", "ring", 1, Dimension("Ring", 2, 50.0, 1.0), backend="aware"),
            "Ring of 2",
        ),
        (
            build("all-reduce", "ring", 1, Dimension("Ring", 4, 50.0, 1.0), endpoint_delay_ns=0),
            "time 0",
        ),
        (
            build("all-gather", "ring", 3, Dimension("Ring", 4, 50.0, 1.0), splits=4),
            "chunks without bytes",
        ),
    ],
    ids=["a2a-hd", "odd-tree", "aware-2d", "aware-ring-2", "time-0", "empty-chunk"],
)
def test_what_the_original_cannot_run_is_refused(simulation: Simulation, reason: str) -> None:
    with pytest.raises(AstraRefused, match=reason):
        simulate(simulation)


def test_a_receive_without_its_send_stalls_and_is_told() -> None:
    switch = Dimension("Switch", 2, 50.0, 500.0)
    receive = Task(0, NodeType.COMM_RECV, False, frozenset(), 1, size_bytes=8, peer=0, tag=1)
    tasks = [(compute(5, 0),), (receive,)]
    simulation = replace(build("all-reduce", "ring", 1, switch), tasks=tasks)
    with pytest.raises(AstraStalled, match="rank 1: 0 nodes ready, 1 running, of 1") as caught:
        simulate(simulation)
    assert [(r.rank, r.cycles) for r in caught.value.results] == [(0, 5)]


def test_a_collective_in_an_unknown_group_is_refused() -> None:
    switch = Dimension("Switch", 2, 50.0, 500.0)
    task = collective("all-reduce", 8, group="7")
    simulation = replace(build("all-reduce", "ring", 1, switch), tasks=[(task,)] * 2)
    with pytest.raises(AstraRefused, match="group 7 is not in the groups file"):
        simulate(simulation)


@pytest.mark.parametrize("where", ["rendezvous", "shared bus"])
def test_sizes_are_kept_in_32_bits_on_their_way(where: str) -> None:
    """As the original does (found by fuzzing against its binaries): 2^32 + n bytes go as n, and
    what has its 32nd bit set would go as a negative number."""
    # Fast enough for the network itself to take none of the time that grows with the size.
    fast = Dimension("Ring", 4, 1e12, 500.0)

    def cycles(size_bytes: int, narrow: bool = True) -> int:
        bus = BusParameters(10, 2, 1, 0.5) if narrow and where == "shared bus" else None
        asked = build("all-gather", "ring", size_bytes, fast, shared_bus=bus)
        return slowest(replace(asked, rendezvous=narrow and where == "rendezvous"))

    assert cycles(2**32 + 1000) == cycles(1000)
    with pytest.raises(AstraRefused, match="2147483648 bytes with"):
        cycles(2**31)
    assert cycles(2**31, narrow=False) > 0

"""A workload as ASTRA-sim's input set: our own reading of it runs, with the right times."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.astra.files.export import default_system, write_inputs
from analysis.astra.files.network import Dimension, NetworkConfig
from analysis.astra.simulate import simulate
from analysis.astra.simulation import read_simulation
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph
from collectives.call import CollectiveCall
from tests.export.export_graphs import workloads


def _run(folder: Path, graphs: list[Graph], algorithm: str = "ring") -> dict[int, tuple[int, int]]:
    network = NetworkConfig((Dimension("Switch", len(graphs), 12.5, 500.0),))
    files = write_inputs(folder, graphs, network, default_system(1, algorithm))
    simulation = read_simulation(
        files.workload_prefix, files.system, files.network, files.memory, files.groups
    )
    return {r.rank: (r.cycles, r.exposed_cycles) for r in simulate(simulation)}


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(workloads(), st.sampled_from(["ring", "direct"]))
def test_every_workload_runs(tmp_path: Path, graphs: list[Graph], algorithm: str) -> None:
    found = _run(tmp_path, graphs, algorithm)
    assert sorted(found) == list(range(len(graphs)))
    for rank, (cycles, exposed) in found.items():
        computed = sum(max(1, n.duration_ns) for n in graphs[rank] if isinstance(n, ComputeNode))
        assert cycles - exposed == computed


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=6))
def test_computation_is_exact_to_the_nanosecond(tmp_path: Path, durations: list[int]) -> None:
    graph = tuple(
        ComputeNode(id=i, name="c", after=(i - 1,) if i else (), duration_ns=duration)
        for i, duration in enumerate(durations)
    )
    total = sum(max(1, duration) for duration in durations)
    assert _run(tmp_path, [graph, graph]) == {0: (total, 0), 1: (total, 0)}


def test_an_all_gathers_total_becomes_its_shard(tmp_path: Path) -> None:
    """Ring all-gather of 4 shards of 1 MiB: three steps of one shard each."""
    call = CollectiveCall("all_gather", 4 << 20, (0, 1, 2, 3))
    graph = (CollectiveNode(id=0, name="x", call=call),)
    way = int(1000 + (1 << 20) / (12.5 * 2**30 / 1e9))
    assert {c for c, _ in _run(tmp_path, [graph] * 4).values()} == {3 * (way + 10) + 10}


def test_a_rank_without_work_is_no_obstacle(tmp_path: Path) -> None:
    call = CollectiveCall("all_reduce", 1 << 20, (0, 2))
    graph = (CollectiveNode(id=0, name="x", call=call),)
    found = _run(tmp_path, [graph, (), graph])
    assert found[1] == (1, 0)
    assert found[0] == found[2]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    network = NetworkConfig((Dimension("Switch", 4, 12.5, 500.0),))
    with pytest.raises(ValueError, match="2 graphs for a network of 4"):
        write_inputs(tmp_path, [(), ()], network, default_system(1))


def test_the_options_name_every_file(tmp_path: Path) -> None:
    network = NetworkConfig((Dimension("Switch", 3, 12.5, 500.0),))
    call = CollectiveCall("all_reduce", 64, (0, 2))
    graph = (CollectiveNode(id=0, name="x", call=call),)
    files = write_inputs(tmp_path, [graph, (), graph], network, default_system(1))
    options = dict(option.split("=") for option in files.options())
    assert set(options) == {
        "--workload-configuration",
        "--system-configuration",
        "--network-configuration",
        "--remote-memory-configuration",
        "--comm-group-configuration",
    }
    prefix = options.pop("--workload-configuration")
    assert all(Path(f"{prefix}.{rank}.et").is_file() for rank in range(3))
    assert all(Path(path).is_file() for path in options.values())

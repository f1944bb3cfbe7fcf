"""ASTRA-sim's files: read what is right, say what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from analysis.astra.errors import AstraInputError
from analysis.astra.files.memory import MEMORY_TYPES, MemoryConfig, read_memory, render_memory
from analysis.astra.files.network import (
    TOPOLOGIES,
    Dimension,
    NetworkConfig,
    read_network,
    render_network,
)
from analysis.astra.files.system import (
    COLLECTIVES,
    Implementation,
    SystemConfig,
    read_system,
    render_system,
)
from analysis.astra.network.memory_bus import BusParameters
from analysis.chakra.group_file import CommunicatorGroup, read_groups, render_groups
from groundwire.commands.astra import astra
from groundwire.commands.console.outcome import outcome
from tests.astra.astra_inputs import system, write_inputs

NETWORK: dict[str, list[Any]] = {
    "topology": ["Switch"],
    "npus_count": [4],
    "bandwidth": [50.0],
    "latency": [500.0],
}
GRAPH = [{"id": 1, "type": 7, "comm_type": 0, "comm_size": 1 << 20}]
APP = typer.Typer()
APP.command()(outcome(astra))


def _run(options: dict[str, str], *more: str) -> Any:
    words = [word for option in options.items() for word in option]
    return CliRunner().invoke(APP, [*words, *more])


def test_the_command_prints_the_originals_lines(tmp_path: Path) -> None:
    options = write_inputs(tmp_path, [GRAPH] * 4, system(["ring"]), NETWORK)
    ended = _run(options, "--backend", "aware")
    assert ended.exit_code == 0
    lines = ended.stdout.splitlines()
    assert len(lines) == 4
    way = 2 * int(500 + (1 << 18) / (50 * 2**30 / 1e9))
    cycles = 6 * (way + 10) + 10 + 3 * 3 * int((1 << 18) / 1600)
    expected = {
        f"sys[{r}] finished, {cycles} cycles, exposed communication {cycles} cycles."
        for r in range(4)
    }
    assert set(lines) == expected
    as_json = json.loads(_run(options, "--backend", "aware", "--json").stdout)
    assert [rank["cycles"] for rank in as_json["ranks"]] == [cycles] * 4


def test_the_originals_other_options_are_accepted(tmp_path: Path) -> None:
    options = write_inputs(tmp_path, [GRAPH] * 4, system(["ring"]), NETWORK)
    plain = _run(options).stdout
    same = _run(
        options,
        "--comm-group-configuration=empty",
        "--logging-folder=log",
        "--comm-scale=1",
        "--num-queues-per-dim=1",
        "--rendezvous-protocol=false",
    )
    assert same.stdout == plain
    rendezvous = _run(options, "--rendezvous-protocol", "true")
    assert rendezvous.exit_code == 0
    assert rendezvous.stdout != plain
    scaled = _run(options, "--injection-scale", "3")
    assert scaled.stdout != plain


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("network.yml", "topology: [Torus]", ["network.yml", "topology", "'Torus'", "Switch"]),
        ("network.yml", "npus_count: [1]", ["npus_count", "1", "at least 2"]),
        ("network.yml", "npus_count: [4, 4]", ["npus_count", "2 entries"]),
        ("network.yml", "npus_count: [2.5]", ["npus_count", "2.5", "whole"]),
        ("network.yml", "bandwidth: [0]", ["bandwidth", "0", "above 0"]),
        ("network.yml", "bandwidth: [.nan]", ["bandwidth", "nan"]),
        ("network.yml", "latency: [fast]", ["latency", "'fast'", "a number"]),
        ("network.yml", "latency: 500", ["latency", "needs a list"]),
        ("network.yml", None, ["is not YAML"]),
        ("system.json", None, ["system.json", "is not JSON"]),
        ("system.json", {"scheduling-policy": "SJF"}, ["scheduling-policy", "'SJF'", "FIFO"]),
        ("system.json", {"preferred-dataset-splits": 0}, ["preferred-dataset-splits", "0"]),
        ("system.json", {"endpoint-delay": -1}, ["endpoint-delay", "-1", "at least 0"]),
        ("system.json", {"local-mem-bw": "fast"}, ["local-mem-bw", "'fast'"]),
        ("system.json", {"all-reduce-implementation": ["tree"]}, ["'tree'", "oneRing"]),
        ("system.json", {"all-reduce-implementation": "ring"}, ["needs a list"]),
        ("system.json", {"all-reduce-implementation": ["ring", "ring"]}, ["2 entries"]),
        ("system.json", {"model-shared-bus": 1, "G": "small"}, ["system.json: G", "'small'"]),
        ("system.json", {"all-reduce-implementation-custom": ["x"]}, ["not modelled"]),
        ("memory.json", {"memory-type": "HBM"}, ["memory-type", "'HBM'", "MEMORY_POOL"]),
        ("memory.json", {"memory-type": "MEMORY_POOL"}, ["remote-mem-bw", "at least 1"]),
        ("groups.json", {"0": [0, 1]}, ["groups.json", "0", "above 0"]),
        ("groups.json", {"1": [0, 9]}, ["rank 9", "0 to 3"]),
        ("groups.json", {"1": [2, 2]}, ["twice"]),
        ("w.2.et", None, ["w.2.et: byte 0: "]),
    ],
)
def test_a_bad_file_is_named_with_what_is_allowed(
    name: str, text: str | dict[str, Any] | None, told: list[str], tmp_path: Path
) -> None:
    groups = {"1": [0, 1, 2, 3]}
    options = write_inputs(tmp_path, [GRAPH] * 4, system(["ring"]), NETWORK, groups)
    path = tmp_path / name
    if text is None:
        path.write_bytes(b"\x7f{[")
    elif isinstance(text, dict):
        path.write_text(json.dumps(json.loads(path.read_text()) | text))
    else:
        key = text.split(":")[0]
        lines = [line for line in path.read_text().splitlines() if not line.startswith(key)]
        path.write_text("\n".join([*lines, text]))
    ended = _run(options)
    assert ended.exit_code == 2
    assert ended.stdout == ""
    for words in told:
        assert words in ended.stderr
    assert ended.stderr.count(name) <= 1


def test_numbers_are_read_as_the_original_reads_them(tmp_path: Path) -> None:
    """Its YAML knows 5e1 as a number (1.1, of Python's reader, does not), and in its JSON any
    value but the number 0 differs from 0, false included."""
    plain = _run(write_inputs(tmp_path, [GRAPH] * 4, system(["ring"]), NETWORK)).stdout
    network = {**NETWORK, "bandwidth": [f"{NETWORK['bandwidth'][0] / 1000:g}e3"]}
    assert _run(write_inputs(tmp_path, [GRAPH] * 4, system(["ring"]), network)).stdout == plain
    work = [[{"id": 1, "type": 4, "num_ops": 10**9, "tensor_size": 10**6, "micros": 3}]] * 4

    def run(**flag: bool | int) -> str:
        document = system(["ring"], **{"peak-perf": 1, "local-mem-bw": 1600}, **flag)
        return str(_run(write_inputs(tmp_path, work, document, NETWORK)).stdout)

    assert run(**{"roofline-enabled": True}) == run(**{"roofline-enabled": 1})
    assert run(**{"roofline-enabled": False}) == run(**{"roofline-enabled": 1})
    assert run(**{"roofline-enabled": 0}) != run(**{"roofline-enabled": 1})


@pytest.mark.parametrize("missing", ["system.json", "network.yml", "memory.json", "w.3.et"])
def test_a_missing_file_is_named(missing: str, tmp_path: Path) -> None:
    options = write_inputs(tmp_path, [GRAPH] * 4, system(["ring"]), NETWORK)
    (tmp_path / missing).unlink()
    ended = _run(options)
    assert ended.exit_code == 2
    assert missing in ended.stderr
    assert "No such file" in ended.stderr


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"comm_type": 0, "comm_size": 8, "deps": [9]}, "depends on node 9"),
        ({"comm_type": 0, "comm_size": 8, "deps": [1]}, "cycle through node 1"),
        ({"comm_type": 0}, "lacks attribute comm_size"),
        ({"comm_type": 44, "comm_size": 8}, "comm_type 44"),
        ({"comm_type": 0, "comm_size": "much"}, "not an integer"),
        ({"comm_type": 0, "comm_size": 8, "pg_name": "dp"}, "pg_name"),
        ({"comm_type": 3, "comm_size": 8}, "no GATHER"),
        ({"comm_type": 0, "comm_size": 8, "involved_dim": []}, "covers 0 of 1"),
        ({"type": 1}, "METADATA"),
        ({"type": 5, "comm_dst": 1, "comm_src": 3, "comm_size": 8, "comm_tag": 1}, "comm_src is 3"),
        ({"type": 9}, "type 9"),
    ],
)
def test_a_bad_graph_is_told(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    graph = [{"id": 1, "type": 7} | change]
    options = write_inputs(tmp_path, [graph] * 4, system(["ring"]), NETWORK)
    ended = _run(options)
    assert ended.exit_code == 2
    assert told in ended.stderr


def test_a_stalled_run_prints_who_finished_and_fails(tmp_path: Path) -> None:
    receive = [{"id": 1, "type": 6, "comm_src": 0, "comm_size": 8, "comm_tag": 1}]
    idle = [{"id": 1, "type": 4, "micros": 2}]
    graphs = [idle, receive, idle, idle]
    options = write_inputs(tmp_path, graphs, system(["ring"]), NETWORK)
    ended = _run(options)
    assert ended.exit_code == 1
    assert [line.split()[0] for line in ended.stdout.splitlines()] == ["sys[0]", "sys[2]", "sys[3]"]
    assert "rank 1" in ended.stderr


def test_ignored_keys_are_told_on_stderr(tmp_path: Path) -> None:
    document = system(["ring"]) | {"intra-dimension-scheduling": "RG", "speed": 3}
    ended = _run(write_inputs(tmp_path, [GRAPH] * 4, document, NETWORK))
    assert ended.exit_code == 0
    assert "intra-dimension-scheduling" in ended.stderr
    assert "speed" in ended.stderr


def test_a_collective_over_some_dimensions_alone_is_told(tmp_path: Path) -> None:
    """As in ASTRA-sim, which says nothing of it."""
    network = NETWORK | {"topology": ["Ring", "Switch"], "npus_count": [2, 2]}
    network |= {"bandwidth": [50.0, 50.0], "latency": [500.0, 500.0]}
    for name in ("few", "all"):
        (tmp_path / name).mkdir()
    few = _run(write_inputs(tmp_path / "few", [GRAPH] * 4, system(["ring"]), network))
    assert "over the first 1 alone, which 2 of 4 ranks share" in " ".join(few.stderr.split())
    all_ = _run(write_inputs(tmp_path / "all", [GRAPH] * 4, system(["ring"] * 2), network))
    assert "alone" not in all_.stderr


_numbers = st.floats(0.001, 1e6)
_buses = st.builds(
    BusParameters,
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.floats(0, 1, width=32),
    st.integers(0, 10),
)
_implementations = st.builds(
    Implementation,
    st.sampled_from(["ring", "halvingDoubling"]),
    st.booleans(),
) | st.builds(Implementation, st.just("direct"), st.booleans(), st.none() | st.integers(0, 99_999))


@given(
    st.lists(
        st.builds(Dimension, st.sampled_from(TOPOLOGIES), st.integers(2, 4096), _numbers, _numbers),
        min_size=1,
        max_size=4,
    )
)
def test_network_files_round_trip(tmp_path_factory: Any, dimensions: list[Dimension]) -> None:
    path = tmp_path_factory.mktemp("network") / "network.yml"
    config = NetworkConfig(tuple(dimensions))
    path.write_text(render_network(config))
    assert read_network(path) == config


@given(
    st.builds(
        SystemConfig,
        st.dictionaries(
            st.sampled_from(COLLECTIVES), st.lists(_implementations, min_size=1).map(tuple)
        ),
        st.integers(1, 4096),
        st.sampled_from(["LIFO", "FIFO", "EXPLICIT"]),
        st.integers(0, 1000),
        st.integers(1, 64),
        st.sampled_from(["baseline", "localBWAware"]),
        _numbers,
        _numbers,
        st.booleans(),
        st.booleans(),
        st.none() | _buses,
    )
)
def test_system_files_round_trip(tmp_path_factory: Any, config: SystemConfig) -> None:
    path = tmp_path_factory.mktemp("system") / "system.json"
    path.write_text(render_system(config))
    assert read_system(path) == config


@given(
    st.builds(
        MemoryConfig,
        st.sampled_from(
            [name for name in MEMORY_TYPES if "NODE" not in name and "NO_" not in name]
        ),
        st.integers(0, 10_000),
        st.integers(1, 10_000),
    )
    | st.builds(
        MemoryConfig,
        st.just("PER_NODE_MEMORY_EXPANSION"),
        st.integers(0, 10_000),
        st.integers(1, 10_000),
        st.integers(1, 64),
        st.integers(1, 8),
    )
    | st.just(MemoryConfig())
)
def test_memory_files_round_trip(tmp_path_factory: Any, config: MemoryConfig) -> None:
    path = tmp_path_factory.mktemp("memory") / "memory.json"
    path.write_text(render_memory(config))
    assert read_memory(path) == config


@given(st.dictionaries(st.integers(1, 99), st.permutations(range(8)).map(lambda order: order[:3])))
def test_groups_files_round_trip(tmp_path_factory: Any, ranks: dict[int, list[int]]) -> None:
    path = tmp_path_factory.mktemp("groups") / "groups.json"
    groups = {
        number: CommunicatorGroup(number, tuple(members)) for number, members in ranks.items()
    }
    path.write_text(render_groups(groups.values()))
    assert read_groups(path, 8) == groups


@given(st.binary(max_size=60))
def test_garbage_is_refused_as_input(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.mktemp("garbage") / "file"
    path.write_bytes(data)
    for read in (read_network, read_system, read_memory):
        with pytest.raises(AstraInputError):
            read(path)

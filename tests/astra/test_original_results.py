"""Cycle for cycle: results of ASTRA-sim's own binaries.

`reference.csv` holds one collective per row, the cycles of the fastest and the slowest rank;
`original_runs.json` holds whole graphs (computation, groups, send and receive, several collectives,
remote memory, the original's options) with every closing line in the order in which the original
printed them. Both come from binaries built from ASTRA-sim's master of March 2026.
"""

from __future__ import annotations

import csv
import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

from analysis.astra.simulate import simulate
from analysis.astra.simulation import Simulation, read_simulation
from tests.astra.astra_inputs import system, write_inputs

HERE = Path(__file__).parent
with (HERE / "reference.csv").open() as file:
    ROWS = list(csv.DictReader(file))
RUNS = json.loads((HERE / "original_runs.json").read_text())
_TYPES = {"ALL_REDUCE": 0, "ALL_GATHER": 2, "ALL_TO_ALL": 6, "REDUCE_SCATTER": 7}


def _row_name(row: dict[str, str]) -> str:
    keys = ("backend", "topology", "npus", "collective", "implementation", "size", "splits")
    return "-".join(row[key] for key in keys)


def _row_simulation(row: dict[str, str], folder: Path) -> Simulation:
    npus = [int(n) for n in row["npus"].split("|")]
    graph = [{"id": 1, "type": 7, "comm_type": _TYPES[row["collective"]]}]
    graph[0]["comm_size"] = int(row["size"])
    options = write_inputs(
        folder,
        [graph] * prod(npus),
        system(
            row["implementation"].split("|"),
            **{
                "scheduling-policy": row["scheduling"],
                "endpoint-delay": int(row["endpoint_delay"]),
                "active-chunks-per-dimension": int(row["active"]),
                "preferred-dataset-splits": int(row["splits"]),
                "collective-optimization": row["optimization"],
            },
        ),
        {
            "topology": row["topology"].split("|"),
            "npus_count": npus,
            "bandwidth": row["bandwidth"].split("|"),
            "latency": row["latency"].split("|"),
        },
    )
    return read_simulation(*list(options.values())[:4], backend=row["backend"])


@pytest.mark.parametrize("row", ROWS, ids=_row_name)
def test_reference_row(row: dict[str, str], tmp_path: Path) -> None:
    simulation = _row_simulation(row, tmp_path)
    npus = simulation.network.npus
    results = simulate(simulation)
    assert sorted(result.rank for result in results) == list(range(npus))
    assert max(result.cycles for result in results) == int(row["cycles_max"])
    assert min(result.cycles for result in results) == int(row["cycles_min"])
    # A graph of one collective computes nothing: all of it is exposed.
    assert all(result.exposed_cycles == result.cycles for result in results)
    if npus <= 64:
        assert simulate(simulation, short_cuts=False) == results


@pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))
def test_original_run(run: dict[str, Any], tmp_path: Path) -> None:
    graphs = [run["graphs"][index] for index in run["graph_of_rank"]]
    options = write_inputs(
        tmp_path, graphs, run["system"], run["network"], run.get("groups"), run.get("memory")
    )
    simulation = read_simulation(*options.values(), backend=run["backend"], **run["options"])
    results = simulate(simulation)
    found = [[result.rank, result.cycles, result.exposed_cycles] for result in results]
    assert found == run["finished"]

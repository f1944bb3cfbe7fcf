"""`groundwire astra`: ASTRA-sim's analytical simulation of its own input files."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from analysis.astra.errors import AstraStalled
from analysis.astra.rank_result import RankResult
from analysis.astra.simulate import simulate
from analysis.astra.simulation import read_simulation


class Backend(StrEnum):
    """ASTRA-sim's two analytical network backends."""

    UNAWARE = "unaware"
    AWARE = "aware"


def astra(
    workload_configuration: Annotated[
        Path,
        typer.Option(metavar="PATH", help="Chakra traces PATH.0.et, PATH.1.et, ..."),
    ],
    system_configuration: Annotated[
        Path, typer.Option(metavar="FILE", help="ASTRA-sim's system file (JSON).")
    ],
    network_configuration: Annotated[
        Path, typer.Option(metavar="FILE", help="ASTRA-sim's analytical network file (YAML).")
    ],
    remote_memory_configuration: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Remote memory file (JSON) (default: no such memory)."),
    ] = None,
    comm_group_configuration: Annotated[
        str, typer.Option(metavar="FILE", help="Communicator groups (JSON), or `empty`.")
    ] = "empty",
    backend: Annotated[
        Backend,
        typer.Option(
            metavar="NAME",
            help="aware: messages wait for each other on links; unaware: they do not.",
        ),
    ] = Backend.UNAWARE,
    num_queues_per_dim: Annotated[
        int, typer.Option(min=1, metavar="N", help="Queues per dimension, at least 1.")
    ] = 1,
    injection_scale: Annotated[
        float,
        typer.Option(
            min=0, metavar="N", help="Factor on the system file's endpoint-delay, at least 0."
        ),
    ] = 1.0,
    rendezvous_protocol: Annotated[
        str, typer.Option(metavar="BOOL", help="A receiver asks before a send: true or false.")
    ] = "false",
    comm_scale: Annotated[float, typer.Option(hidden=True)] = 1.0,
    compute_scale: Annotated[float, typer.Option(hidden=True)] = 1.0,
    logging_configuration: Annotated[str, typer.Option(hidden=True)] = "empty",
    logging_folder: Annotated[str, typer.Option(hidden=True)] = "log",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Simulate ASTRA-sim's input files and print its closing lines, cycle for cycle.

    The options are the original's; its logging and its comm-scale and compute-scale, which it
    reads and does not use, are accepted and have no effect here either. Exit code 2 for input
    that ASTRA-sim cannot run, 1 when ranks never finish.
    """
    del comm_scale, compute_scale, logging_configuration, logging_folder
    if rendezvous_protocol.lower() not in ("true", "false"):
        raise typer.BadParameter(f"found {rendezvous_protocol!r}, allowed true or false")
    simulation = read_simulation(
        workload_configuration,
        system_configuration,
        network_configuration,
        remote_memory_configuration,
        # The original takes any name with "empty" in it for "no groups".
        None if "empty" in comm_group_configuration else Path(comm_group_configuration),
        backend=backend.value,
        queues_per_dimension=num_queues_per_dim,
        injection_scale=injection_scale,
        rendezvous=rendezvous_protocol.lower() == "true",
    )
    for note in simulation.notes:
        print(f"note: {system_configuration}: {note}", file=sys.stderr)
    try:
        results = simulate(simulation)
    except AstraStalled as error:
        _print(error.results, as_json=as_json)
        raise
    _print(results, as_json=as_json)
    return 0


def _print(results: Sequence[RankResult], *, as_json: bool) -> None:
    if as_json:
        ranks = [
            {"rank": r.rank, "cycles": r.cycles, "exposed_communication_cycles": r.exposed_cycles}
            for r in results
        ]
        print(json.dumps({"ranks": ranks}))
    else:
        print("".join(f"{result}\n" for result in results), end="")

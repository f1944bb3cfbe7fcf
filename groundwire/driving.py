"""A spec's network, driven from outside: the backend of another simulator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from analysis.predict.driven_network import Pairs, network_columns
from analysis.predict.interface import PredictorError
from groundwire.pipeline import SpecLike, resolve
from simulation.columns import pack
from simulation.driven_engine import DrivenEngine
from simulation.failure import SimulationError


def drive(
    spec: SpecLike,
    overrides: Mapping[str, object] | None = None,
    *,
    pairs: Pairs | None = None,
    announced: bool = True,
) -> DrivenEngine:
    """The network of a spec's ranks in the packet engine, at time 0, with nothing under way.

    `pairs` are the ranks that may exchange messages, either way (default: all with all; each pair
    takes some hundred bytes). `announced`: a message waits for its receive, as Gloo's do; else it
    leaves when it is sent. ECMP's choices are drawn by the spec's seed, as those of `predict` are.
    The spec's workload only says how many ranks there are, and where. Raises SpecError, and
    PredictorError for what the engine does not follow or where it cannot be had.
    """
    network = network_columns(resolve(spec, overrides), pairs, announced)
    try:
        return DrivenEngine(network)
    except SimulationError as error:
        raise PredictorError(str(error)) from error


def write_network(
    spec: SpecLike,
    path: str | Path,
    overrides: Mapping[str, object] | None = None,
    *,
    pairs: Pairs | None = None,
    announced: bool = True,
) -> None:
    """The network of `drive` as a file that `DrivenNetwork` reads (simulation/engine/driven.hpp).
    Raises SpecError, PredictorError, OSError."""
    network = network_columns(resolve(spec, overrides), pairs, announced)
    Path(path).write_bytes(b"".join(pack(network)))

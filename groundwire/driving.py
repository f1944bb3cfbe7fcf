"""A spec's network, driven from outside: the backend of another simulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path

from analysis.predict.interface import PredictorError
from analysis.predict.models.packet import driven_scenario
from analysis.predict.setting import setting_of_spec
from groundwire.pipeline import SpecLike, resolve
from simulation.columns import Column, pack
from simulation.driven_engine import DrivenEngine, driven
from simulation.failure import SimulationError

Pairs = Iterable[tuple[int, int]]


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
    network = network_columns(spec, overrides, pairs, announced)
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
    network = network_columns(spec, overrides, pairs, announced)
    Path(path).write_bytes(b"".join(pack(network)))


def network_columns(
    spec: SpecLike,
    overrides: Mapping[str, object] | None = None,
    pairs: Pairs | None = None,
    announced: bool = True,
) -> dict[str, Column]:
    """The network of `drive` as the engine reads it. Raises SpecError, PredictorError."""
    resolved = resolve(spec, overrides)
    setting = setting_of_spec(resolved)
    ranks = len(setting.hosts)
    if len(set(setting.hosts)) < ranks and setting.transport.carrier is not None:
        raise PredictorError("ranks share a host; what these exchange over RoCE is not followed")
    if resolved.faults:
        raise PredictorError("faults are not followed in a network that is driven")
    if not announced and setting.transport.carrier is not None:
        raise PredictorError("messages that are not announced do not go over RoCE here")
    if setting.transport.unknown is not None:
        raise PredictorError(setting.transport.unknown)
    chosen = combinations(range(ranks), 2) if pairs is None else pairs
    return driven(driven_scenario(setting, chosen), announced=announced)

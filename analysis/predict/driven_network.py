"""A spec's network without messages, as the packet engine reads it: others say what is sent."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from analysis.predict.interface import PredictorError
from analysis.predict.models.packet import driven_scenario
from analysis.predict.setting import setting_of_spec
from simulation.columns import Column
from simulation.driven_engine import driven
from topologies.spec.spec import Spec

Pairs = Iterable[tuple[int, int]]


def network_columns(
    spec: Spec, pairs: Pairs | None = None, announced: bool = True, meshes: int = 1
) -> dict[str, Column]:
    """The network of a spec's ranks. `pairs` are those that may exchange messages, either way
    (default: all with all), by so many connections each (`driven_scenario`). `announced`: a message
    waits for its receive. Raises PredictorError."""
    setting = setting_of_spec(spec)
    ranks = len(setting.hosts)
    if spec.faults:
        raise PredictorError("faults are not followed in a network that is driven")
    if not announced and setting.transport.carrier is not None:
        raise PredictorError("messages that are not announced do not go over RoCE here")
    if setting.transport.unknown is not None:
        raise PredictorError(setting.transport.unknown)
    chosen = combinations(range(ranks), 2) if pairs is None else pairs
    return driven(driven_scenario(setting, chosen, meshes), announced=announced)

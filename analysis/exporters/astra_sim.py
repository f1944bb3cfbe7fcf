"""The work of every rank as all input files of ASTRA-sim."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.astra.files.export import write_inputs
from analysis.chakra.graph import Graph
from analysis.exporters.write import WrittenTrace
from analysis.predict.models.astra import AstraAnalytical
from analysis.predict.setting import setting_of_spec
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from topologies.spec.spec import Spec

_MEMORY_GBPS = 1600.0
"""Local memory of the system file, as in ASTRA-sim's own examples."""
_SAMPLE_BYTES = 1 << 20


def write_astra_sim(
    folder: Path, spec: Spec, graphs: Sequence[Graph], fitted: Mapping[str, Any]
) -> WrittenTrace:
    """`fitted` are calibrated parameters of astra-analytical. Raises ValueError."""
    setting = setting_of_spec(spec)
    world = CollectiveCall(Kind.ALL_TO_ALL, _SAMPLE_BYTES, tuple(range(len(graphs))))
    # One network for all kinds of collectives: the backend that takes several dimensions.
    planned = AstraAnalytical(backend="unaware", **fitted).simulation(setting, world)
    # The predictor's reductions are free; the files need a bandwidth to be exact (write_inputs).
    system = replace(planned.system, local_mem_bw_gbps=_MEMORY_GBPS)
    inputs = write_inputs(folder, graphs, planned.network, system, seed=spec.seed)
    command = f"groundwire astra {shlex.join(inputs.options())}"
    return WrittenTrace((), command=command)

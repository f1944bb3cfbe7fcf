"""The ports of a run before it runs: its ranks connect, and no more."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from analysis.predict.interface import PredictorError, Setting
from analysis.predict.placement_search import placed
from analysis.predict.setting import setting_of, setting_of_spec
from analysis.runs.run import load_run
from emulator.progress import Report
from emulator.ranks.packing import ranks_per_process
from emulator.session import run_session
from groundwire.pipeline import silent
from topologies.spec.spec import Spec


def connected_setting(spec: Spec, progress: Report = silent) -> Setting:
    """The setting of the spec's collectives on the virtual kernel, with the ports of its
    connections, and so the paths that ECMP chooses.

    A guest builds the fabric and connects the ranks. Until then a run of the whole spec does the
    same, to the random number. Takes seconds. Raises PredictorError for specs whose ports that does
    not tell, and what `run_session` raises.
    """
    if spec.jobs or spec.transport.of_programs:
        what = "several jobs" if spec.jobs else f"transport.kind: {spec.transport.kind}"
        raise PredictorError(f"{spec.name}: expected one job over TCP to connect; found {what}")
    spec = placed(spec)
    only_connecting = spec.with_overrides(
        {
            "virtual.connect_only": "true",
            # As many as without what follows.
            "virtual.ranks_per_process": str(ranks_per_process(spec)),
            "faults": "[]",
            "capture.points": "[]",
            "counters.interval": "null",
        },
        source="connecting",
    )
    with tempfile.TemporaryDirectory(prefix="groundwire-connect-") as scratch:
        directory = Path(scratch) / "run"
        run_session(only_connecting, "virtual", directory, progress)
        found = setting_of(load_run(directory))
    return replace(setting_of_spec(spec), ports=found.ports, group_ports=found.group_ports)

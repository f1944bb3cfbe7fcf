"""The start of a job as a factor of a study."""

from __future__ import annotations

from pathlib import Path

from groundwire.forecast import predict_whole
from groundwire.studies.planning import plan_study
from topologies.spec.spec import parse_spec

_STUDY = """
spec:
  fabric:
    kind: leaf-spine
    leaves: 2
    spines: 1
    hosts_per_leaf: 2
    link: {rate: 10Gbps, delay: 1us, mtu: 9000}
  placement: strided
  jobs:
    - {name: a, workload: &sends {kind: collectives, ranks: 2, operations: [
        {kind: send_recv, size: 10MB}]}}
    - {name: b, workload: *sends}
factors:
  jobs.1.start: [0ns, 100ms]
predictor: flow
"""


def test_starts_are_levels_and_phases_apart_are_faster(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(_STUDY)
    plan = plan_study(tmp_path / "study.yaml")
    assert [dict(case.levels) for case in plan.cases] == [
        {"jobs.1.start": "0ns"},
        {"jobs.1.start": "100ms"},
    ]
    assert all(case.ranks == 4 and case.emulated is not None for case in plan.cases)
    together, apart = (
        predict_whole(parse_spec(case.predicted.spec), "flow").duration_ns for case in plan.cases
    )
    assert 1.9 * apart < together < 2.1 * apart

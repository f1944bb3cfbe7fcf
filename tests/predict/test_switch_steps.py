"""Every predictor of the ladder of `compare` knows switches, also where hosts are the switches."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.predict.models.flow import Flow, FlowIdealEcmp
from analysis.predict.setting import setting_of_spec
from tests.collectives.test_aggregation import spec_of
from workloads.models.planned import planned_calls


@pytest.mark.parametrize(
    ("fabric", "ranks"),
    [
        ({"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2}, 4),
        ({"kind": "mesh", "dims": [2, 3]}, 6),
    ],
)
def test_flows_follow_switches(fabric: dict[str, Any], ranks: int) -> None:
    spec = spec_of(fabric, ranks, size=1_000_000, mode="streaming")
    (planned,) = planned_calls(spec)
    setting = setting_of_spec(spec)
    hashed, spread = (one.predict(setting, planned.call) for one in (Flow(), FlowIdealEcmp()))
    assert spread == pytest.approx(hashed, rel=0.1)

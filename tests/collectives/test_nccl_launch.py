"""NCCL's launch comes before all that a GPU sends: predictors have collectives end later by it."""

import pytest

from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.flow import Flow
from analysis.predict.models.packet import Packet
from analysis.predict.setting import setting_of_spec
from analysis.predict.simulator import Simulator
from topologies.spec.spec import parse_spec
from workloads.models.planned import planned_calls

_LAUNCH_US = 300
_FABRICS = {
    "hosts": "{kind: flat, hosts: 4}",
    "servers": "{kind: rails, server: dgx-h100, servers: 2, hosts_per_server: 2, spines: 1}",
}


def _duration_ns(predictor: Simulator, kind: str, fabric: str, launch_us: int) -> float:
    spec = parse_spec(
        f"""
name: launch
fabric: {_FABRICS[fabric]}
workload: {{kind: collectives, ranks: 4, operations: [{{kind: {kind}, size: 64KiB}}]}}
collectives: {{backend: nccl, launch: {launch_us}us}}
"""
    )
    (planned,) = planned_calls(spec)
    threads = [len(own) for own in planned.call.schedule.chunks[0].program.participants]
    assert min(threads) > 1, "each rank has several threads, which wait for one launch"
    return predictor.predict(setting_of_spec(spec), planned.call)


@pytest.mark.parametrize("kind", ["all_to_all", "all_reduce", "all_gather"])
@pytest.mark.parametrize("fabric", sorted(_FABRICS))
@pytest.mark.parametrize("make", [AlphaBeta, Flow, Packet])
def test_a_launch_delays_all_messages(make: type[Simulator], fabric: str, kind: str) -> None:
    """All ranks launch at once, so that what follows is the same, later by the launch and by the
    nanosecond in which a sleeping process goes on."""
    none, some = (_duration_ns(make(), kind, fabric, us) for us in (0, _LAUNCH_US))
    assert some - none == pytest.approx(_LAUNCH_US * 1000 + 1, abs=1)

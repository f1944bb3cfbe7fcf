"""`packet-skipping` inside a hierarchical collective: few of many groups are followed."""

import pytest

from analysis.predict.models.packet import Packet
from analysis.predict.models.packet_skipping import PacketSkipping
from analysis.predict.planned_run import PredictedJob, predict_workload
from analysis.predict.setting import setting_of_spec
from topologies.spec.spec import Spec, parse_spec
from workloads.models.planned import planned_calls

_SIDE = 10
_TREE = f"leaf-spine, leaves: {_SIDE}, spines: {_SIDE}, hosts_per_leaf: {_SIDE}"
_SWITCH = f"flat, hosts: {_SIDE**2}"


def _spec(
    fabric: str = _TREE, queue: str = "droptail", transport: str = "tcp", iterations: int = 1
) -> Spec:
    return parse_spec(
        f"""
name: stages
fabric:
  {{kind: {fabric}, link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}, queue: {{kind: {queue}}}}}
transport: {{kind: {transport}}}
workload:
  kind: collectives
  ranks: {_SIDE**2}
  iterations: {iterations}
  operations: [{{kind: all_reduce, size: 800KB}}]
collectives:
  backend: programs
  all_reduce: {{algorithm: hierarchical, dimensions: [{_SIDE}, {_SIDE}]}}
"""
    )


def _both(spec: Spec) -> tuple[PredictedJob, PredictedJob, PacketSkipping, int]:
    """The answers of both speeds, and how many hops all of it takes."""
    setting, exact, skipping = setting_of_spec(spec), Packet(), PacketSkipping()
    found = predict_workload(spec, setting, exact), predict_workload(spec, setting, skipping)
    assert exact.last is not None
    return *found, skipping, exact.last.hops


def _duration_ns(job: PredictedJob) -> float:
    (found,) = job.collectives.values()
    return float(found.duration_ns)


@pytest.mark.parametrize(
    ("fabric", "queue", "transport"),
    [
        (_TREE, "droptail", "tcp"),
        (_TREE, "lossless", "roce"),
        (_SWITCH, "droptail", "tcp"),
    ],
)
def test_stages_are_leapt_over_within_the_stated_error(
    fabric: str, queue: str, transport: str
) -> None:
    """A collective that comes once. Leaves are alike before their ranks have met those of others;
    later stages differ by whom ECMP had collide."""
    exact, leapt, skipping, hops = _both(_spec(fabric, queue, transport))
    last = skipping.last
    assert last is not None
    assert last.leaps[0].error_ns < 0.03 * _duration_ns(exact)
    assert last.hops < hops * 3 / 4
    stated_ns = sum(leap.error_ns for leap in last.leaps)
    off_ns = abs(_duration_ns(leapt) - _duration_ns(exact))
    assert off_ns <= max(stated_ns, 1)
    assert off_ns < 0.05 * _duration_ns(exact)


def test_exchanges_that_share_ports_are_followed() -> None:
    """Where leaves' ports share the memory of one switch, no group has its ports to itself."""
    exact, leapt, skipping, hops = _both(_spec(_SWITCH, "shared"))
    assert skipping.last is not None
    assert skipping.last.hops == hops
    assert not skipping.last.leaps
    assert _duration_ns(leapt) == _duration_ns(exact)


def test_messages_that_are_leapt_over_in_stages_have_their_times() -> None:
    """The messages of a group that was not followed come as those of another one did."""
    spec = _spec()
    skipping = PacketSkipping(keeps_flows=True)
    predict_workload(spec, setting_of_spec(spec), skipping)
    assert skipping.last is not None
    posted, received = skipping.last.messages_ns
    assert (posted >= 0).all()
    assert (received > posted).all()


def test_a_collective_that_comes_again_is_leapt_over_as_a_whole() -> None:
    """Three of it that agree tell the next one: stages are for what comes seldom."""
    skipping = PacketSkipping()
    spec = _spec(_SWITCH, iterations=6)
    predict_workload(spec, setting_of_spec(spec), skipping)
    assert skipping.last is not None
    (planned, *_) = planned_calls(spec)
    whole = planned.call.schedule.count(planned.call.shape)
    assert max(leap.messages for leap in skipping.last.leaps) == whole

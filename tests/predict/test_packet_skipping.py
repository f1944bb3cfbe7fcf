"""The predictor `packet-skipping`: leaps are exact where the same comes again, end where others
come, and say how far off they may be."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analysis.predict.models.packet import Packet
from analysis.predict.models.packet_skipping import PacketSkipping
from analysis.predict.planned_run import PredictedJob, jobs_of, planned_scenario, predict_workload
from analysis.predict.setting import setting_of_spec
from groundwire.forecast import predict
from topologies.spec.spec import Spec, parse_spec


def _spec(workload: str, more: str = "", queue: str = "{kind: dctcp, k: 100KB}") -> Spec:
    return parse_spec(
        f"""
name: test
fabric:
  kind: leaf-spine
  leaves: 2
  spines: 2
  hosts_per_leaf: 4
  link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}
  queue: {queue}
workload: {workload}
{more}
"""
    )


def _training(more: str = "", queue: str = "{kind: dctcp, k: 100KB}", **keys: object) -> Spec:
    said: Mapping[str, object] = {
        "parallelism": "{tensor: 4, pipeline: 2, data: 1}",
        "iterations": 1,
        "layers": 8,
        "hidden": 512,
        "sequence": 256,
        "microbatches": 4,
        **keys,
    }
    rows = ", ".join(f"{key}: {value}" for key, value in said.items())
    return _spec(f"{{kind: training, {rows}}}", more, queue)


def _both(spec: Spec) -> tuple[PredictedJob, PredictedJob, PacketSkipping]:
    skipping = PacketSkipping()
    setting = setting_of_spec(spec)
    exact = predict_workload(spec, setting, Packet())
    return exact, predict_workload(spec, setting, skipping), skipping


def _leapt(skipping: PacketSkipping) -> int:
    assert skipping.last is not None
    return sum(leap.messages for leap in skipping.last.leaps)


_OPERATIONS = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter")
_PROGRAMS = "collectives: {backend: programs, all_reduce: {algorithm: ring}}"
_TRANSPORTS = {
    "cubic": "transport: {congestion_control: cubic}",
    "reno": "transport: {congestion_control: reno}",
    "dctcp": "transport: {congestion_control: dctcp}",
    "roce": "transport: {kind: roce, congestion_control: none}",
}


@given(
    operation=st.sampled_from(_OPERATIONS),
    transport=st.sampled_from(tuple(_TRANSPORTS)),
    ranks=st.integers(2, 6),
    size=st.integers(1, 300),
)
@settings(max_examples=15, deadline=None)
@example(operation="all_to_all", transport="cubic", ranks=4, size=86)  # windows grow by a seventh
@example(operation="all_gather", transport="reno", ranks=5, size=11)
def test_what_takes_equally_long_each_time_is_leapt_over_within_what_it_states(
    operation: str, transport: str, ranks: int, size: int
) -> None:
    """Samples agree by how long the whole takes. Equal wholes do not make leaps exact: windows and
    timers decide when each rank ends but the last, and so when each sets out the next time.
    Ranks' ends differ by some ns then, and the answer states by how much a leap is off."""
    times = 12
    roce = transport == "roce"
    kind = "all_reduce" if roce else operation
    spec = _spec(
        f"{{kind: collectives, ranks: {ranks}, iterations: {times}, "
        f"operations: [{{kind: {kind}, size: {8 * ranks * size}KB}}]}}",
        _TRANSPORTS[transport] + (f"\n{_PROGRAMS}" if roce else ""),
        "{kind: droptail}",
    )
    exact, skipped, skipping = _both(spec)
    pairs = [(exact.collectives[key], skipped.collectives[key]) for key in exact.collectives]
    assert len(pairs) == times
    # The first ones are followed in any case: connections are new, and samples are few.
    assert [one.duration_ns for one, _ in pairs[:3]] == [one.duration_ns for _, one in pairs[:3]]
    if len({one.duration_ns for one, _ in pairs[1:]}) == 1:
        # Members of one that takes as long may end some ns apart: so much it states.
        assert skipping.last is not None
        stated_ns = max((leap.error_ns for leap in skipping.last.leaps), default=0)
        assert max(abs(b.duration_ns - a.duration_ns) for a, b in pairs) <= stated_ns
        assert kind != "all_reduce" or _leapt(skipping) > 0
    else:  # windows still grow, and samples agree within 3%
        assert mean(abs(b.duration_ns / a.duration_ns - 1) for a, b in pairs) < 0.03


@pytest.mark.parametrize(
    ("more", "queue"),
    [
        (_TRANSPORTS["dctcp"], "{kind: dctcp, k: 100KB}"),
        (f"{_TRANSPORTS['roce']}\n{_PROGRAMS}", "{kind: lossless, kmin: 100KB, kmax: 400KB}"),
    ],
    ids=["tcp", "roce"],
)
def test_leaps_end_where_other_messages_come(more: str, queue: str) -> None:
    """Activations go from stage to stage beside all-reduces that are leapt over."""
    exact, skipped, skipping = _both(_training(more, queue, microbatches=8))
    assert skipping.last is not None
    assert skipped.iterations[0].duration_ns == pytest.approx(
        exact.iterations[0].duration_ns, rel=0.01
    )
    lengths = {leap.messages for leap in skipping.last.leaps}
    assert len(lengths) > 1, "some leaps have ended before their exchange had"


def test_little_differences_that_grow_are_not_leapt_over() -> None:
    """Direct all-reduces take 23 us where ranks set out together, and 29 us each, one after the
    other, once a pipeline's message has made one rank late: by 300 ns at first."""
    spec = parse_spec(
        f"""
name: test
fabric:
  kind: leaf-spine
  leaves: 4
  spines: 2
  hosts_per_leaf: 4
  link: {{rate: 400Gbps, delay: 500ns, mtu: 9000}}
  queue: {{kind: lossless, kmin: 100KB, kmax: 400KB}}
{_TRANSPORTS["roce"]}
workload:
  kind: training
  parallelism: {{tensor: 4, pipeline: 2, data: 1}}
  iterations: 1
  layers: 16
  hidden: 1024
  sequence: 256
  microbatches: 2
  dtype: float16
collectives: {{backend: programs, all_reduce: {{algorithm: direct}}}}
"""
    )
    exact, skipped, skipping = _both(spec)
    (whole,), (found,) = exact.iterations, skipped.iterations
    assert found.error_ns is not None
    assert abs(found.duration_ns - whole.duration_ns) <= found.error_ns
    assert found.error_ns < whole.duration_ns / 50
    assert _leapt(skipping) > 500


def test_leaps_save_packets() -> None:
    spec = _training(_TRANSPORTS["cubic"], microbatches=16)
    exact, skipping = Packet(), PacketSkipping()
    setting = setting_of_spec(spec)
    predict_workload(spec, setting, exact)
    predict_workload(spec, setting, skipping)
    assert exact.last is not None
    assert skipping.last is not None
    assert skipping.last.packets < 0.8 * exact.last.packets


def test_an_answer_says_how_far_off_it_may_be() -> None:
    found = predict(_training(_TRANSPORTS["cubic"]), predictors=["packet", "packet-skipping"])
    answers = [each.predicted for each in found.collectives]
    assert all(each["packet"].error_ns is None for each in answers)
    errors = [
        each.predicted["packet-skipping"].error_ns
        for each in found.collectives
        if each.call.kind == "all_reduce"
    ]
    exact, whole = (found.iterations[name] for name in ("packet", "packet-skipping"))
    assert not isinstance(exact, str)
    assert not isinstance(whole, str)
    assert whole.error_ns is not None
    assert abs(whole.duration_ns - exact.duration_ns) <= whole.error_ns
    assert whole.error_ns < whole.duration_ns / 50
    assert whole.error_ns >= max(error for error in errors if error is not None)


def test_messages_that_are_leapt_over_have_their_times() -> None:
    spec = _training(_TRANSPORTS["dctcp"])
    setting = setting_of_spec(spec)
    scenario, _ = planned_scenario(jobs_of(spec), setting)
    found = {}
    for kind in (Packet, PacketSkipping):
        one = kind(keeps_flows=True)
        one.run(scenario)
        assert one.last is not None
        posted, received = one.last.messages_ns
        assert (posted >= 0).all()
        assert (received > posted).all()
        found[kind] = received
    assert len(found[Packet]) == len(found[PacketSkipping])


def test_beside_faults_all_is_followed() -> None:
    fault = "faults: [{kind: loss, link: leaf0-spine0, value: 0.1%, iteration: 0}]"
    exact, skipped, skipping = _both(_training(f"{_TRANSPORTS['cubic']}\n{fault}"))
    assert _leapt(skipping) == 0
    assert [one.duration_ns for one in exact.collectives.values()] == [
        one.duration_ns for one in skipped.collectives.values()
    ]

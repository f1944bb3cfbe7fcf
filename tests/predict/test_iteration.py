"""Whole iterations predicted from the steps that ranks run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import groundwire
from analysis.predict.added_up import AddedUp
from analysis.predict.interface import Predictor, PredictorError, Setting, load_predictor
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.planned_run import PredictedIteration, predict_workload
from analysis.predict.scenario import GroupedCall, Timeline
from analysis.predict.setting import setting_of_spec
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from groundwire.commands.app import app
from topologies.spec.spec import Spec, parse_dict
from topologies.spec.workload_section import DlrmWorkload, TrainingWorkload
from workloads.models.build import step_of
from workloads.models.step import ComputeKernel, StartCollective


def _spec(workload: dict[str, Any], **sections: Any) -> Spec:
    fabric = {"kind": "flat", "hosts": 8, "link": {"rate": "100Gbps", "delay": "1us"}}
    return parse_dict({"name": "it", "fabric": fabric, "workload": workload} | sections)


class _Alike:
    """Every collective takes the same time."""

    name = "alike"
    ignores = "everything"

    def __init__(self, time_ns: float) -> None:
        self._time_ns = time_ns

    def predict(self, setting: Setting, call: CollectiveCall) -> float:
        """That time."""
        return self._time_ns


def _predicted(spec: Spec, times_ns: float | None = None) -> PredictedIteration:
    """With every collective of the same time, or as alpha-beta has them, added up."""
    predictor = AlphaBeta() if times_ns is None else _Alike(times_ns)
    return _iteration(spec, AddedUp(predictor))


def _iteration(spec: Spec, predictor: Predictor) -> PredictedIteration:
    return predict_workload(spec, setting_of_spec(spec), predictor).iterations[0]


def _compute_ns(spec: Spec) -> int:
    workload = spec.workload
    assert isinstance(workload, DlrmWorkload | TrainingWorkload)
    item_bytes = workload.item_bytes
    kernels = [a for a in step_of(workload, 0) if isinstance(a, ComputeKernel)]
    return sum(spec.compute.time_ns(k.flops, k.moved_bytes, item_bytes) for k in kernels)


def test_an_iteration_has_the_collectives_programs() -> None:
    """Alpha-beta prices a program by its steps: all data goes over each one of a tree."""
    workload = {"kind": "dlrm", "ranks": 8, "overlap": False}
    tree = {"backend": "programs", "all_reduce": {"algorithm": "tree"}}
    gloo_ns = _predicted(_spec(workload)).exposed_comm_ns
    tree_ns = _predicted(_spec(workload, collectives=tree)).exposed_comm_ns
    assert tree_ns > 1.3 * gloo_ns


def test_without_overlap_everything_is_one_after_another() -> None:
    spec = _spec({"kind": "dlrm", "ranks": 8, "overlap": False}, compute={"device": "v100"})
    setting, total = setting_of_spec(spec), 0.0
    assert isinstance(spec.workload, DlrmWorkload)
    item_bytes = spec.workload.item_bytes
    for action in step_of(spec.workload, 0):
        if isinstance(action, StartCollective):
            call = CollectiveCall(
                action.kind, action.elements * item_bytes, tuple(range(8)), item_bytes
            )
            total += AlphaBeta().predict(setting, call)
    found = _predicted(spec)
    assert found.compute_ns == _compute_ns(spec)
    assert found.duration_ns == pytest.approx(total + _compute_ns(spec), abs=2)
    assert found.exposed_comm_ns == pytest.approx(total, abs=2)


_OVERLAPPED, _APART = (
    _spec({"kind": "dlrm", "ranks": 4, "overlap": overlap}, compute={"device": "v100"})
    for overlap in (True, False)
)


@settings(max_examples=20)
@given(st.integers(0, 10_000_000))
def test_overlap_hides_communication_and_never_adds_to_it(time_ns: int) -> None:
    spec, apart = _OVERLAPPED, _APART
    together, one_by_one = _predicted(spec, float(time_ns)), _predicted(apart, float(time_ns))
    assert together.duration_ns <= one_by_one.duration_ns + 1
    assert together.duration_ns >= together.compute_ns == one_by_one.compute_ns
    assert together.duration_ns <= together.compute_ns + together.exposed_comm_ns + 1


def test_a_pipeline_fills_and_drains() -> None:
    """GPipe (Huang et al. 2019, section 2): with p stages and m microbatches whose messages take no
    time, a pass takes m + p - 1 times a stage's."""
    durations = {}
    for microbatches in (1, 2, 4):
        spec = _spec(
            {
                "kind": "training",
                "parallelism": {"pipeline": 4},
                "layers": 4,
                "vocabulary": 1,
                "microbatches": microbatches,
            },
            compute={"device": "v100", "overhead": "0ns"},
        )
        durations[microbatches] = _predicted(spec, 0.0).duration_ns
    # The update of the parameters, which is done once, takes part in all three.
    per_slot_ns = durations[2] - durations[1]
    assert durations[4] - durations[2] == pytest.approx(2 * per_slot_ns, rel=0.02)
    assert durations[1] >= 4 * per_slot_ns


def test_a_traced_workload_is_refused() -> None:
    spec = _spec({"kind": "chakra", "path": "none", "ranks": 2})
    with pytest.raises(PredictorError, match="chakra is not predicted"):
        _predicted(spec)


def test_a_benchmark_is_the_sum_of_its_collectives() -> None:
    operations = [{"kind": Kind.ALL_REDUCE.value, "size": "1MB"}] * 3
    spec = _spec({"kind": "collectives", "ranks": 8, "operations": operations})
    assert _predicted(spec, 1000.0) == PredictedIteration(3000, 0, 3000)


def test_predict_tells_the_iteration() -> None:
    arguments = ["predict", "topologies/dlrm-fat-tree-k4.yaml", "--predictor", "alpha-beta"]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    document = json.loads(done.stdout)
    whole = document["iterations"]["alpha-beta"]
    assert 0 < whole["exposed_comm_ns"] < whole["duration_ns"]
    assert whole["duration_ns"] < document["iteration"]["alpha-beta"] + whole["compute_ns"]
    table = CliRunner().invoke(app, arguments).stdout
    assert f"{whole['duration_ns'] / 1000:,.2f}" in table


def test_a_step_with_groups_and_messages_is_predicted_ahead() -> None:
    """Each name once, and the iteration longer than what its first rank computes."""
    workload = {
        "kind": "training",
        "parallelism": {"data": 2, "tensor": 2, "pipeline": 2},
        "layers": 2,
        "hidden": 64,
        "vocabulary": 512,
        "microbatches": 2,
        "batch_size": 8,
    }
    spec = _spec(workload | {"ranks": 8})
    found = groundwire.predict(spec, predictors=["flow"])
    names = [one.name for one in found.collectives]
    assert len(names) == len(set(names))
    assert {one.call.kind for one in found.collectives} == {"all_reduce", "send_recv"}
    whole = found.iterations["flow"]
    assert isinstance(whole, PredictedIteration)
    assert whole.duration_ns > _compute_ns(spec)


def _layers(**collectives: Any) -> Spec:
    layer = {
        "name": "a",
        "forward": {"compute": "100us"},
        "input_gradient": {"compute": "100us"},
        "weight_gradient": {"compute": "100us", "collective": "all_reduce", "size": "1MB"},
    }
    table = {"kind": "layers", "ranks": 8, "parallelism": "data", "layers": [layer, layer]}
    return _spec(table, collectives=collectives)


@pytest.mark.parametrize("programs", [False, True])
def test_known_times_of_layers_count_with_and_without_programs(programs: bool) -> None:
    """Two passes of 2 + 2 + 1 kernels: nothing is computed before the first layer's gradient."""
    entry = {"algorithm": "ring", "chunks": 2}
    spec = _layers(backend="programs", all_reduce=entry) if programs else _layers()
    found = _iteration(spec, load_predictor("flow"))
    kernels = 2 * 5
    assert found.compute_ns == kernels * 100_000
    # A rank that sleeps goes on in the nanosecond after the one that it asked for.
    assert found.duration_ns == pytest.approx(
        found.compute_ns + found.exposed_comm_ns, abs=2 + kernels
    )


@pytest.mark.parametrize("collectives", [{}, {"backend": "programs", "all_reduce": "ring"}])
def test_collectives_that_share_uplinks_slow_each_other_down(collectives: dict[str, str]) -> None:
    """Priced one by one, with all ranks' traffic between leaves, they take what they take when they
    are followed message by message."""
    entry = {key: {"algorithm": v} if v == "ring" else v for key, v in collectives.items()}
    spec = _spec(
        {"kind": "dlrm", "ranks": 16, "iterations": 1},
        fabric={"kind": "leaf-spine", "leaves": 4, "spines": 4, "hosts_per_leaf": 4},
        placement="strided",
        collectives=entry,
    )
    flow = load_predictor("flow")
    apart, followed = (_iteration(spec, one) for one in (AddedUp(flow), flow))
    assert apart.duration_ns == pytest.approx(followed.duration_ns, rel=0.1)


def test_a_message_ends_where_its_receiver_has_it() -> None:
    """Its sender comes to wait for it much later, as in a pipeline."""
    call = CollectiveCall(Kind.SEND_RECV, 1000, (0, 1), peer=1)
    timeline = Timeline([GroupedCall(call, "")], [{0: 0, 1: 2}], [{0: 5, 1: 12}], [{0: 500, 1: 12}])
    assert timeline.measured_ns() == [10]

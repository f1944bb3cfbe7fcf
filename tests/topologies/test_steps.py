"""The steps of models, as their ranks' main threads do them; no torch, no kernel."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from collectives.kinds import Kind
from topologies.spec.workload_section import DlrmWorkload, TrainingWorkload
from workloads.models.dlrm import DlrmModel, dlrm_step
from workloads.models.step import Action, ComputeKernel, StartCollective, StartMessage, WaitFor
from workloads.models.transformer import Stage, training_step

_DEGREES = st.integers(1, 3)


@st.composite
def trainings(draw: st.DrawFn) -> TrainingWorkload:
    degrees = {
        "data": draw(_DEGREES),
        "tensor": draw(_DEGREES),
        "pipeline": draw(_DEGREES.map(lambda n: n + 1)),
    }
    return TrainingWorkload.model_validate(
        {
            "kind": "training",
            "parallelism": degrees,
            "layers": degrees["pipeline"] * draw(_DEGREES),
            "hidden": 6 * draw(st.integers(1, 8)),
            "vocabulary": draw(st.integers(6, 500)),
            "sequence": draw(st.integers(1, 16)),
            "microbatches": draw(st.integers(1, 4)),
            "bucket": draw(st.integers(1, 100_000)),
            "overlap": draw(st.booleans()),
        }
    )


@st.composite
def dlrms(draw: st.DrawFn) -> DlrmWorkload:
    return DlrmWorkload.model_validate(
        {
            "kind": "dlrm",
            "ranks": 2,
            "bucket": draw(st.integers(1, 10_000_000)),
            "overlap": draw(st.booleans()),
            "bottom_mlp": draw(st.lists(st.integers(1, 2000), min_size=1, max_size=5)),
            "top_mlp": draw(st.lists(st.integers(1, 2000), min_size=1, max_size=5)),
        }
    )


def _waits_match(step: list[Action], overlap: bool) -> None:
    """Each thing that begins has a name of its own and is waited for once, afterwards."""
    under_way: set[str] = set()
    begun: set[str] = set()
    for action in step:
        if isinstance(action, StartCollective | StartMessage):
            assert action.name not in begun
            begun.add(action.name)
            under_way.add(action.name)
            if not overlap and isinstance(action, StartCollective):
                assert {name for name in under_way if "pipeline" not in name} == {action.name}
        elif isinstance(action, WaitFor):
            under_way.remove(action.name)
    assert not under_way
    assert isinstance(step[-1], ComputeKernel)  # the update, when all gradients are there
    assert step[-1].phase == "update"


@given(trainings())
def test_what_a_training_step_begins_it_waits_for_once(workload: TrainingWorkload) -> None:
    for rank in range(workload.ranks):
        _waits_match(list(training_step(Stage(workload, rank))), workload.overlap)


@given(dlrms())
def test_what_a_dlrm_step_begins_it_waits_for_once(workload: DlrmWorkload) -> None:
    _waits_match(list(dlrm_step(DlrmModel(workload))), workload.overlap)


@given(trainings())
def test_both_ends_of_every_message_agree(workload: TrainingWorkload) -> None:
    ends: Counter[StartMessage] = Counter()
    for rank in range(workload.ranks):
        for action in training_step(Stage(workload, rank)):
            if isinstance(action, StartMessage):
                assert rank in (action.source, action.destination)
                ends[action] += 1
    assert set(ends.values()) <= {2}
    # Each microbatch crosses each border between stages once forward and once backward.
    borders = (workload.parallelism.pipeline - 1) * workload.parallelism.data
    assert len(ends) == 2 * borders * workload.parallelism.tensor * workload.microbatches


@given(trainings())
def test_a_groups_ranks_begin_the_same_collectives_in_the_same_order(
    workload: TrainingWorkload,
) -> None:
    steps = [list(training_step(Stage(workload, rank))) for rank in range(workload.ranks)]
    for name, partition in workload.groups_of_ranks().items():
        assert sorted(rank for part in partition for rank in part) == [*range(workload.ranks)]
        for part in partition:
            begun = [
                [a for a in steps[rank] if isinstance(a, StartCollective) and a.group == name]
                for rank in part
            ]
            assert all(other == begun[0] for other in begun)
            assert len(part) > 1 or not begun[0]


@given(trainings())
def test_each_gradient_is_reduced_once(workload: TrainingWorkload) -> None:
    for rank in range(workload.ranks):
        stage = Stage(workload, rank)
        reduced = [
            action.elements
            for action in training_step(stage)
            if isinstance(action, StartCollective) and action.group == "data"
        ]
        held = stage.layers * stage.layer_parameters + stage.last * stage.head_parameters
        assert sum(reduced) == (held if workload.parallelism.data > 1 else 0)
        assert all(size >= stage.bucket_parameters for size in reduced[:-1])


@given(dlrms())
def test_dlrm_exchanges_embeddings_twice_and_reduces_each_gradient_once(
    workload: DlrmWorkload,
) -> None:
    model = DlrmModel(workload)
    begun = [action for action in dlrm_step(model) if isinstance(action, StartCollective)]
    exchanges = [action for action in begun if action.kind is Kind.ALL_TO_ALL]
    assert [action.phase for action in exchanges] == ["embedding_forward", "embedding_backward"]
    assert {action.elements for action in exchanges} == {model.exchanged}
    reduced = [action.elements for action in begun if action.kind is Kind.ALL_REDUCE]
    assert sum(reduced) == model.parameters
    assert all(size >= model.bucket_parameters for size in reduced[:-1])

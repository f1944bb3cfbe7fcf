"""Pipelines: what the model says of a schedule's messages is what following it gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.design.models.transformer import critical_sends
from topologies.spec.layers_section import LayersWorkload
from workloads.models.build import step_of
from workloads.models.step import Action, Pause, StartMessage, WaitFor

_FORWARD_NS, _BACKWARD_NS, _MESSAGE_NS = 10_000, 25_000, 100


def _followed_ns(workload: LayersWorkload) -> int:
    """An iteration's duration: a message takes `_MESSAGE_NS` from when both ends are posted."""
    steps = [list(step_of(workload, rank)) for rank in range(workload.ranks)]
    now_ns, at = [0] * len(steps), [0] * len(steps)
    posted: dict[str, list[int]] = {}

    def run(rank: int, action: Action) -> bool:
        match action:
            case Pause():
                now_ns[rank] += action.duration_ns
            case StartMessage(name):
                posted.setdefault(name, []).append(now_ns[rank])
            case WaitFor(name):
                if len(posted[name]) < 2:
                    return False
                now_ns[rank] = max(now_ns[rank], max(posted[name]) + _MESSAGE_NS)
        return True

    while any(place < len(step) for place, step in zip(at, steps, strict=True)):
        before = list(at)
        for rank, step in enumerate(steps):
            while at[rank] < len(step) and run(rank, step[at[rank]]):
                at[rank] += 1
        assert at != before, "all ranks wait"
    return max(now_ns)


@given(st.integers(2, 8), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_an_iteration_has_its_rounds_and_its_critical_messages(stages: int, count: int) -> None:
    layer = {
        "name": "all",
        "forward": {"compute": f"{_FORWARD_NS}ns"},
        "input_gradient": {"compute": f"{_BACKWARD_NS}ns"},
    }
    workload = LayersWorkload.model_validate(
        {
            "kind": "layers",
            "ranks": stages,
            "passes": 1,
            "parallelism": "hybrid-data-model",
            "innermost": 1,
            "stages": stages,
            "microbatches": count,
            "activation": "1KB",
            "layers": [layer],
        }
    )
    rounds = count + stages - 1
    told = rounds * (_FORWARD_NS + _BACKWARD_NS) + critical_sends(stages, count) * _MESSAGE_NS
    assert _followed_ns(workload) == pytest.approx(told, rel=1e-9)

"""Microbatches, stages of a pipeline and parameters that are spread, in tables of layers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from collectives.groups import groups_of
from topologies.spec.layers_section import LayersWorkload
from workloads.models.build import step_of
from workloads.models.layer_table import stage_passes
from workloads.models.step import Pause, StartCollective, StartMessage, WaitFor


def table(**keys: Any) -> LayersWorkload:
    """Two layers on 8 ranks, pairs of which share a model."""
    part = {"compute": "1us", "collective": "all_reduce", "size": "1KB"}
    layer = {"forward": part, "input_gradient": part, "weight_gradient": part, "update": "1us"}
    spread = keys.pop("spread", 0)
    layers = [{"name": name, **layer, "parameter_shard": spread} for name in "ab"]
    raw = {"kind": "layers", "ranks": 8, "passes": 1, "parallelism": "hybrid-data-model"}
    return LayersWorkload.model_validate({**raw, "innermost": 2, "layers": layers, **keys})


def told(workload: LayersWorkload, rank: int) -> str:
    """A step in short: F and B compute, > sends, < receives, - waits, P gathers parameters."""
    words = []
    for action in step_of(workload, rank):
        match action:
            case Pause(name, "forward"):
                words.append(f"F{name}")
            case Pause(name, "input_gradient"):
                words.append(f"B{name}")
            case StartMessage(name):
                way = ">" if action.source == rank else "<"
                words.append(f"{way}{name[9]}{name.split('.')[2]}")
            case StartCollective(name, phase) if phase.startswith("parameters"):
                words.append(f"P{phase[11]}{name.split('.')[-1]}")
            case WaitFor(name) if name.startswith("parameters"):
                words.append(f"-P{name[11]}{name.split('.')[-1]}")
            case WaitFor(name) if name.startswith("pipeline"):
                words.append(f"-{name[9]}{name.split('.')[2]}")
    return " ".join(words)


def test_stages_run_one_forward_one_backward() -> None:
    def short(stage: int, stages: int, microbatches: int) -> str:
        passes = stage_passes(stage, stages, microbatches)
        return " ".join(f"{one.direction[0].upper()}{one.microbatch}" for one in passes)

    assert short(0, 3, 4) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert short(1, 3, 4) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert short(2, 3, 4) == "F0 B0 F1 B1 F2 B2 F3 B3"
    assert short(0, 3, 1) == "F0 B0"
    assert short(0, 1, 2) == "F0 B0 F1 B1"


def test_virtual_stages_interleave() -> None:
    """As torch's ScheduleInterleaved1F1B has it for 4 stages of two parts, and 4 microbatches."""

    def short(stage: int) -> str:
        passes = stage_passes(stage, 4, 4, 2)
        return " ".join(
            f"{one.direction[0].upper()}{one.microbatch}{'ab'[one.part]}" for one in passes
        )

    assert short(0) == "F0a F1a F2a F3a F0b F1b F2b F3b B0b B1b B2b B3b B0a B1a B2a B3a"
    assert short(3) == "F0a F1a F2a F3a F0b B0b F1b B1b F2b B2b F3b B3b B0a B1a B2a B3a"


def test_a_part_is_handed_from_the_last_stage_to_the_first() -> None:
    workload = table(
        stages=4, microbatches=4, activation="1KB", virtual_stages=2, innermost=1, ranks=4
    )
    messages = {
        (action.source, action.destination): action.name
        for action in step_of(workload, 0)
        if isinstance(action, StartMessage)
    }
    # Stage 0 gets the second part of the model's layers from stage 3, and hands gradients back.
    assert messages[3, 0] == "pipeline_forward.0.3.3.1"
    assert messages[0, 3] == "pipeline_backward.0.3.0.0"


def test_a_stage_receives_a_pass_ahead_and_waits_for_no_message_that_it_sends() -> None:
    workload = table(stages=2, microbatches=2, activation="1KB")
    assert told(workload, 0) == "Fa Fb >f0 <b0 Fa Fb >f1 <b1 -b0 Bb Ba -b1 Bb Ba -f0 -f1"
    assert told(workload, 4) == "<f0 -f0 Fa Fb <f1 Bb Ba >b0 -f1 Fa Fb Bb Ba >b1 -b0 -b1"


def test_parameters_are_gathered_a_layer_ahead_also_across_passes() -> None:
    assert told(table(spread="1KB"), 0) == ("Pfa -Pfa Pfb Fa -Pfb Pbb Fb -Pbb Pba Bb -Pba Ba")
    sizes = [a for a in step_of(table(spread="1KB"), 0) if isinstance(a, StartCollective)]
    gathered = [a for a in sizes if a.phase.startswith("parameters")]
    # Each of 4 ranks that reduce gradients together brings 1,000 bytes.
    assert {(a.elements, a.group) for a in gathered} == {(1000, "data")}


def test_groups_stay_within_a_stage() -> None:
    groups = groups_of(table(stages=2, activation="1KB"))
    assert groups["model"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert groups["data"] == [[0, 2], [1, 3], [4, 6], [5, 7]]


@given(
    st.sampled_from(((1, 1), (2, 1), (4, 1), (4, 2))),
    st.integers(1, 5),
    st.integers(1, 2),
    st.sampled_from((0, 512)),
    st.sampled_from(("hybrid-data-model", "hybrid-model-data")),
)
def test_every_message_has_two_ends_in_the_same_order(
    in_stages: tuple[int, int], microbatches: int, passes: int, spread: int, parallelism: str
) -> None:
    stages, parts = in_stages
    microbatches *= stages if parts > 1 else 1
    activation = 1000 if stages > 1 else 0
    workload = table(
        stages=stages,
        virtual_stages=parts,
        microbatches=microbatches,
        passes=passes,
        spread=spread,
        activation=activation,
        parallelism=parallelism,
    )
    sent: dict[tuple[int, int], list[str]] = {}
    received: dict[tuple[int, int], list[str]] = {}
    orders: dict[tuple[str, tuple[int, ...]], list[list[str]]] = {}
    for rank in range(8):
        begun: Counter[str] = Counter()
        mine: dict[str, list[str]] = {}
        for action in step_of(workload, rank):
            match action:
                case StartMessage(name):
                    ends = action.source, action.destination
                    assert rank in ends
                    (sent if rank == ends[0] else received).setdefault(ends, []).append(name)
                    begun[name] += 1
                case StartCollective(name):
                    begun[name] += 1
                    mine.setdefault(action.group, []).append(name)
                case WaitFor(name):
                    begun[name] -= 1
                    assert begun[name] == 0
        assert not any(begun.values())
        for group, names in mine.items():
            members = next(tuple(g) for g in groups_of(workload)[group] if rank in g)  # type: ignore[index]
            orders.setdefault((group, members), []).append(names)
    # Gloo matches messages of a pair, and collectives of a group, by their order.
    assert sent == received
    assert bool(sent) == (stages > 1)
    assert all(names == same[0] for same in orders.values() for names in same)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"stages": 2}, "stages above 1 and their activation"),
        ({"activation": "1KB"}, "stages above 1 and their activation"),
        ({"stages": 3, "activation": "1KB"}, "a multiple of innermost x stages"),
        ({"microbatches": 2, "overlap": False}, "and overlap"),
        (
            {"stages": 2, "activation": "1KB", "virtual_stages": 2, "microbatches": 2},
            "stages of 3 and more with virtual_stages",
        ),
        (
            {"stages": 4, "activation": "1KB", "virtual_stages": 2, "microbatches": 6},
            "microbatches to be a multiple of stages",
        ),
        (
            {"stages": 4, "activation": "1KB", "virtual_stages": 3, "microbatches": 4},
            "layers to be a multiple of virtual_stages",
        ),
        ({"spread": "1KB", "parallelism": "data", "innermost": None}, "hybrid-model-data"),
    ],
)
def test_what_cannot_be_says_so(keys: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        table(**keys)

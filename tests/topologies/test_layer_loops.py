"""Training loops over layer tables, held against ASTRA-sim 1's definitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.groups import groups_of
from topologies.spec.layers_section import LayersWorkload
from workloads.models.build import step_of
from workloads.models.step import Action, Pause, StartCollective, WaitFor

STRATEGIES = ["data", "model", "hybrid-data-model", "hybrid-model-data", "hybrid-dlrm"]


def table(parallelism: str, layers: list[dict[str, Any]], **keys: Any) -> LayersWorkload:
    if parallelism in ("hybrid-data-model", "hybrid-model-data"):
        keys.setdefault("innermost", 2)
    if parallelism == "hybrid-dlrm":
        keys.setdefault("last_bottom_layer", 1)
    raw = {"kind": "layers", "ranks": 8, "parallelism": parallelism, "layers": layers, **keys}
    return LayersWorkload.model_validate(raw)


def three(forward: str) -> list[dict[str, Any]]:
    """Layers a, b, c; the forward pass and the input gradient have this collective at each."""
    part = {"compute": "1us", "collective": forward, "size": "1KB"}
    gradient = {"compute": "1us", "collective": "all_reduce", "size": "1KB"}
    return [
        {
            "name": name,
            "forward": part,
            "input_gradient": part,
            "weight_gradient": gradient,
            "update": "1us",
        }
        for name in "abc"
    ]


def told(workload: LayersWorkload, rank: int = 0) -> str:
    """A step in short: Fa computes a's forward pass, +Wa posts its weight gradient, -Wa waits.
    Weights that are streamed in are f and b, before the forward and the backward pass."""
    letters = {"forward": "F", "input_gradient": "I", "weight_gradient": "W", "update": "U"}
    letters |= {"weights_forward": "f", "weights_backward": "b"}
    words = []
    for action in step_of(workload, rank):
        match action:
            case Pause(name, phase):
                words.append(letters[phase] + name)
            case StartCollective(name):
                phase, _, _, layer = name.split(".")
                words.append(f"+{letters[phase]}{layer}")
            case WaitFor(name):
                phase, _, _, layer = name.split(".")
                words.append(f"-{letters[phase]}{layer}")
    return " ".join(words)


UPDATES = "-Wa Ua -Wb Ub -Wc Uc"


def test_data() -> None:
    first = "Fa Fb Fc Wc +Wc Ic Wb +Wb Ib Wa +Wa"
    again = "-Wa Ua Fa -Wb Ub Fb -Wc Uc Fc Wc +Wc Ic Wb +Wb Ib Wa +Wa"
    assert told(table("data", three("all_gather"))) == f"{first} {again} {UPDATES}"


def test_model() -> None:
    forward = "Fa +Fa -Fa Fb +Fb -Fb Fc +Fc -Fc"
    backward = "Ic +Ic Wc -Ic Ib +Ib Wb -Ib Ia Wa"
    assert told(table("model", three("all_gather"), passes=2)) == " ".join([forward, backward] * 2)


@pytest.mark.parametrize("parallelism", ["hybrid-data-model", "hybrid-model-data"])
def test_hybrids(parallelism: str) -> None:
    forward = "Fa +Fa -Fa Fb +Fb -Fb Fc +Fc -Fc"
    backward = "Ic +Ic Wc +Wc -Ic Ib +Ib Wb +Wb -Ib Ia Wa +Wa"
    again = "-Wa Ua Fa +Fa -Fa -Wb Ub Fb +Fb -Fb -Wc Uc Fc +Fc -Fc"
    expected = f"{forward} {backward} {again} {backward} {UPDATES}"
    assert told(table(parallelism, three("all_reduce"))) == expected


def test_dlrm() -> None:
    """Layer a is the embedding, b the bottom MLP, c and d the top."""
    layers = three("all_to_all")
    for layer in layers[1:]:
        layer["forward"] = layer["input_gradient"] = {"compute": "1us"}
    layers.append(layers[2] | {"name": "d"})
    forward = "Fa +Fa Fb -Fa Fc Fd"
    backward = "Wd +Wd Id Wc +Wc Ic +Ia Wb +Wb Ib Wa +Wa -Ia"
    again = "-Wa Ua Fa +Fa -Wb Ub Fb -Fa -Wc Uc Fc -Wd Ud Fd"
    expected = f"{forward} {backward} {again} {backward} {UPDATES} -Wd Ud"
    assert told(table("hybrid-dlrm", layers)) == expected


def test_without_overlap_each_collective_is_awaited() -> None:
    """LIBRA's no_overlap: forward, then backward, the first layer's input gradient included."""
    forward = "Fa +Fa -Fa Fb +Fb -Fb Fc +Fc -Fc"
    backward = " ".join(f"I{x} +I{x} -I{x} W{x} +W{x} -W{x} U{x}" for x in "cba")
    for parallelism in ("hybrid-data-model", "hybrid-dlrm"):
        workload = table(parallelism, three("all_to_all"), overlap=False, passes=2)
        assert told(workload) == " ".join([forward, backward] * 2)
    data = "Fa Fb Fc " + " ".join(f"I{x} W{x} +W{x} -W{x} U{x}" for x in "cba")
    assert told(table("data", three("all_gather"), overlap=False, passes=1)) == data
    model = forward + " " + " ".join(f"I{x} +I{x} -I{x} W{x} U{x}" for x in "cba")
    assert told(table("model", three("all_gather"), overlap=False, passes=1)) == model


def test_streamed_weights_come_a_layer_ahead_and_gradients_go_out() -> None:
    """Rank 0 is outside: it posts what the others post, computes nothing and updates."""
    passes = {name: {"compute": "1us"} for name in ("forward", "input_gradient", "weight_gradient")}
    layers = [{"name": name, "weights": "1KB", "update": "1us", **passes} for name in "ab"]
    workload = table("weight-streaming", layers, passes=1)
    inside = "+fa -fa +fb Fa -fb +bb Fb -bb +ba Ib Wb +Wb -ba Ia Wa +Wa -Wb -Wa"
    assert told(workload, 1) == told(workload, 7) == inside
    assert told(workload) == "+fa -fa +fb -fb +bb -bb +ba +Wb -ba +Wa -Wb Ub -Wa Ua"
    one_by_one = table("weight-streaming", layers, passes=1, overlap=False)
    inside = "+fa -fa Fa +fb -fb Fb +bb -bb Ib Wb +Wb -Wb +ba -ba Ia Wa +Wa -Wa"
    assert told(one_by_one, 1) == inside
    kinds = {a.kind for a in step_of(workload, 0) if isinstance(a, StartCollective)}
    assert kinds == {"broadcast", "reduce"}


@pytest.mark.parametrize(
    ("parallelism", "layer", "said"),
    [
        ("weight-streaming", {"name": "a"}, "expected weights of every layer"),
        ("data", {"name": "a", "weights": "1KB"}, "no weights with another one"),
        (
            "weight-streaming",
            {"name": "a", "weights": "1KB"}
            | {"forward": {"collective": "all_reduce", "size": "1KB"}},
            "expected no collective in a pass",
        ),
    ],
)
def test_weights_are_of_what_is_streamed(
    parallelism: str, layer: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        table(parallelism, [layer])


def test_groups_of_hybrids() -> None:
    inside = [[0, 1], [2, 3], [4, 5], [6, 7]]
    across = [[0, 2, 4, 6], [1, 3, 5, 7]]
    model_inside = groups_of(table("hybrid-data-model", three("all_gather")))
    assert (model_inside["model"], model_inside["data"]) == (inside, across)
    data_inside = groups_of(table("hybrid-model-data", three("all_gather")))
    assert (data_inside["model"], data_inside["data"]) == (across, inside)
    for parallelism in ("data", "model", "hybrid-dlrm"):
        assert set(groups_of(table(parallelism, three("all_to_all")))) == {"world"}


def test_sizes_are_what_a_rank_brings() -> None:
    """An all-gather's array is that of all members together: here 2 of 1,000 bytes."""
    step = step_of(table("hybrid-data-model", three("all_gather")), 0)
    elements = {a.phase: (a.elements, a.group) for a in step if isinstance(a, StartCollective)}
    assert elements["forward"] == (2 * 250, "model")
    assert elements["weight_gradient"] == (250, "data")


@st.composite
def tables(draw: st.DrawFn) -> LayersWorkload:
    parallelism = draw(st.sampled_from(STRATEGIES))
    kinds = st.sampled_from(["all_reduce", "all_to_all", "all_gather", "reduce_scatter"])
    part = st.one_of(
        st.just({}),
        st.builds(lambda n: {"compute": f"{n}ns"}, st.integers(0, 1000)),
        st.builds(lambda k, n: {"collective": k, "size": n}, kinds, st.integers(1, 10**6)),
    )
    layer = st.fixed_dictionaries(
        {
            "name": st.sampled_from("ab"),
            "forward": part,
            "input_gradient": part,
            "weight_gradient": part,
        }
    )
    layers = draw(st.lists(layer, min_size=3, max_size=6))
    innermost = draw(st.sampled_from([1, 2, 4, 8]))
    keys = {"innermost": innermost} if parallelism.endswith(("-model", "l-data")) else {}
    if parallelism == "hybrid-dlrm":
        keys["last_bottom_layer"] = draw(st.integers(1, len(layers) - 2))
    return table(parallelism, layers, passes=draw(st.integers(1, 3)), **keys)


@given(tables())
def test_what_begins_is_waited_for_once_and_gradients_before_the_next_pass(
    workload: LayersWorkload,
) -> None:
    under_way: set[str] = set()
    begun: set[str] = set()
    actions: list[Action] = list(step_of(workload, 3))
    for action in actions:
        match action:
            case StartCollective(name):
                assert name not in begun
                assert action.elements > 0
                assert len(groups_of(workload)[action.group][0]) > 1
                begun.add(name)
                under_way.add(name)
            case WaitFor(name):
                under_way.remove(name)
            case Pause(name, "forward"):
                # No layer computes forward while a gradient of an earlier layer is still reduced.
                first = min((int(n.split(".")[2]) for n in under_way if n[0] == "w"), default=99)
                assert any(layer.name == name for layer in workload.layers[:first])
    assert not under_way
    assert sum(a.duration_ns for a in actions if isinstance(a, Pause)) == workload.passes * sum(
        part.compute_ns
        for index, layer in enumerate(workload.layers)
        for phase, part in (
            ("forward", layer.forward),
            ("weight", layer.weight_gradient),
            ("input", layer.input_gradient),
        )
        if index or phase != "input" or workload.parallelism in STRATEGIES[1:4]
    )

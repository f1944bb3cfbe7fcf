"""The part of result.json on virtual GPUs, from logs whose times are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from analysis.results.gpus import (
    KernelTotal,
    bubbles_of,
    classes_of,
    exposure_of,
    kernel_class,
    throughput_of,
)
from analysis.runs.run import Run


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::addmm", "matrix product"),
        ("aten::_scaled_dot_product_flash_attention_backward", "attention"),
        ("aten::_foreach_addcdiv_", "optimizer"),
        ("aten::native_layer_norm", "norm"),
        ("aten::_log_softmax", "softmax and loss"),
        ("aten::index_select", "embedding and indexing"),
        ("aten::split_with_sizes_copy", "copy"),
        ("copy to device", "copy between host and device"),
        ("copy to host", "copy between host and device"),
        ("aten::gelu_backward", "elementwise"),
    ],
)
def test_operators_have_classes(operator: str, kind: str) -> None:
    assert kernel_class(operator) == kind


def test_classes_lose_no_kernel() -> None:
    names = ("aten::mm", "aten::bmm", "aten::add", "aten::copy_", "mine::op")
    kernels = [KernelTotal(name, 2, 10 + i, 0, 0) for i, name in enumerate(names)]
    classes = classes_of(kernels)
    assert sum(each.kernels for each in classes) == 10
    assert sum(each.ns for each in classes) == sum(each.ns for each in kernels)
    assert (classes[0].kernel_class, classes[0].ns) == ("elementwise", 26)


def test_exposed_communication_is_told_by_dimension_of_the_mesh() -> None:
    def rank(dp_ns: int, tp_ns: int) -> SimpleNamespace:
        def one(group: str, iteration: int, ns: int) -> SimpleNamespace:
            kind = "all_reduce" if group == "x" else f"kind {iteration}"
            return SimpleNamespace(group=group, iteration=iteration, waited_ns=ns, kind=kind)

        return SimpleNamespace(
            groups=[
                SimpleNamespace(name="group.1", mesh="dp"), SimpleNamespace(name="x", mesh="tp"),
            ],
            iterations=[
                SimpleNamespace(index=i, start_ns=1000 * i, end_ns=1000 * i + 1000)
                for i in range(3)
            ],
            collectives=[
                one("group.1", 0, 999), one("group.1", 1, dp_ns), one("group.1", 2, dp_ns),
                one("x", 1, tp_ns), one("default", 2, 10),
            ],
        )  # fmt: skip

    run = SimpleNamespace(
        ranks=[rank(100, 40), rank(300, 40)], environment=SimpleNamespace(scale=1)
    )
    found = exposure_of(cast(Run, cast(Any, run)))
    assert [(each.dimension, each.exposed_ns) for each in found] == [
        ("dp", 200), ("tp", 20), ("default", 5)
    ]  # fmt: skip
    assert [each.share for each in found] == [0.2, 0.02, 0.005]
    assert found[0].kinds == {"kind 1": 100, "kind 2": 100}
    assert found[1].kinds == {"all_reduce": 20}


def _steps(*tokens: int | None) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(index=i, start_ns=1000 * i, end_ns=1000 * i + 1000, tokens=count)
        for i, count in enumerate(tokens)
    ]


def _run(ranks: list[SimpleNamespace], tokens: int | None = None) -> Run:
    spec = SimpleNamespace(compute=SimpleNamespace(tokens=tokens))
    environment = SimpleNamespace(scale=1)
    return cast(Run, cast(Any, SimpleNamespace(ranks=ranks, spec=spec, environment=environment)))


def _rank(tokens: int | None, *groups: tuple[str | None, list[int]]) -> SimpleNamespace:
    own = [
        SimpleNamespace(name=f"g{i}", mesh=mesh, ranks=of) for i, (mesh, of) in enumerate(groups)
    ]
    return SimpleNamespace(groups=own, iterations=_steps(7, tokens, tokens), collectives=[])


def test_tokens_are_those_that_are_given() -> None:
    found = throughput_of(_run([_rank(None)] * 4, tokens=4000))
    assert found is not None
    # 4,000 tokens in a microsecond on 4 GPUs.
    assert (found.tokens, found.source, found.tokens_per_gpu_per_s) == (4000, "given", 1e9)


@pytest.mark.parametrize(
    ("ranks", "tokens"),
    [
        ([_rank(100)] * 4, 400),
        ([_rank(100, ("dp", [0, 1, 2, 3]))] * 4, 400),
        # Ranks of a dimension of tensor parallelism look up the same.
        ([_rank(100, ("dp", [0, 2]), ("tp", [0, 1]))] * 4, 200),
        # The first stage of a pipeline has the embedding.
        ([_rank(100, ("pp", [0, 1]))] * 2 + [_rank(None, ("pp", [0, 1]))] * 2, 200),
        # A group without a name may be one of tensor parallelism.
        ([_rank(100, (None, [0, 1]))] * 4, None),
        ([_rank(100, (None, [0, 1, 2, 3]))] * 4, 400),
        ([_rank(None)] * 4, None),
    ],
)
def test_tokens_are_counted_by_what_embeddings_look_up(
    ranks: list[SimpleNamespace], tokens: int | None
) -> None:
    found = throughput_of(_run(ranks))
    assert (found and found.tokens) == tokens


def test_a_bubble_is_the_wait_until_the_sender_begins() -> None:
    def message(start_ns: int, stream: int, waits: list[tuple[int, int]]) -> SimpleNamespace:
        return SimpleNamespace(
            group="default", id="default.0to1.0.0", kind="send_recv", iteration=1, waits=waits,
            start_ns=start_ns, stream=stream, posted_ns=5,
        )  # fmt: skip

    sender, receiver = _rank(None), _rank(None)
    sender.collectives = [message(1600, 4, [])]
    receiver.collectives = [message(1100, 9, [(1200, 1700)])]
    found = bubbles_of(_run([sender, receiver]))
    # 400 of the 500 ns, of two iterations of two ranks of 1,000 ns each.
    assert found is not None and (found.bubble_ns, found.share) == (100, 0.1)
    assert bubbles_of(_run([_rank(None)])) is None

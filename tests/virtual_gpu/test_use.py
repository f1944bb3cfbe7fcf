"""The part of result.json on virtual GPUs, from logs whose times are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from analysis.results.gpus import KernelTotal, classes_of, exposure_of, kernel_class
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
        ("copy between host and device", "copy between host and device"),
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
            return SimpleNamespace(group=group, iteration=iteration, waited_ns=ns)

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

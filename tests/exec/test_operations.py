"""What torch's operations are carried out as."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.runs.records import PARTS
from workloads.observer.operations import _MOST_OF_PARTS, collectives
from workloads.virtual_gpu.building import EXTENSION


def _tensor(device: str, elements: int) -> Any:
    return SimpleNamespace(
        numel=lambda: elements, element_size=lambda: 4, device=SimpleNamespace(type=device)
    )


@pytest.mark.parametrize(
    ("device", "ranks", "algorithm"),
    [("cuda", 16, PARTS), ("cuda", 17, None), ("cpu", 4, None)],
)
def test_a_reduce_scatter_of_few_virtual_gpus_sends_parts(
    device: str, ranks: int, algorithm: str | None
) -> None:
    tensors = _tensor(device, 10), _tensor(device, 10 * ranks)
    (found,) = collectives("_reduce_scatter_base_", tensors, ranks)
    assert (found["kind"], found["size_bytes"]) == ("reduce_scatter", 40 * ranks)
    assert found.get("algorithm") == algorithm and "unpredicted" not in found


def test_the_observer_and_the_virtual_gpu_agree_on_how_many_are_few() -> None:
    text = (EXTENSION / "process_group.cpp").read_text()
    told = re.search(r"most_of_parts = (\d+);", text)
    assert told is not None and int(told[1]) == _MOST_OF_PARTS

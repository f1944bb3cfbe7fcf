"""Designs that cannot be are answered with the constraint that cannot hold."""

from __future__ import annotations

import pytest

from tests.design.design_files import found_in, listed
from tests.session.command import groundwire as command
from topologies.spec.spec import SpecError

_TWO = (4, 4)
_TRANSFORMER = """
workload: {kind: transformer, layers: 8, hidden: 4096, heads: 32, batch_size: 64}
design:
  dimensions:
    - {name: inner, kind: switch, size: 8, bandwidth: 100GB/s}
    - {name: outer, kind: switch, size: 8, bandwidth: 10GB/s}
  strategy: {tensor: [1, 2, 4]}
  host: {memory: 1GB}
"""

MISTAKES = {
    "  constraints: {total_bandwidth: 500}": "line 6: design.constraints.total_bandwidth",
    "  constraints: {total_bandwith: 5GB/s}": "did you mean total_bandwidth?",
    "  objective: cost": "design.objective: found cost; expected constraints.time",
    "": "design.dimensions[0].bandwidth: found no upper limit of d0",
    "  constraints: {total_bandwidth: 5GB/s, linear: [{sum: [d2], at_most: 1GB/s}]}": "found d2; ",
    "  constraints: {total_bandwidth: 5GB/s, linear: [{sum: [d0]}]}": "expected at_most or",
    "  constraints: {total_bandwidth: 100GB/s, linear: [{sum: [d1], at_least: 300GB/s}]}": (
        "design.constraints.total_bandwidth: found 100GB/s; no point can be: expected a limit that "
        "goes with d1 at_least 300GB/s"
    ),
    "  constraints: {total_bandwidth: 500GB/s, order: descending, "
    "linear: [{sum: [d1], equals: 300GB/s}]}": "goes with d1 equals 300GB/s; descending",
    "  objective: cost\n  constraints: {total_bandwidth: 5GB/s, time: 1ms}": (
        "design.constraints.time: found 1ms; no point can be: expected at least 24.0"
    ),
    "  constraints: {total_bandwidth: 5GB/s}\n  host: {memory: 80GB}": "workload.kind transformer",
}


@pytest.mark.parametrize("more", list(MISTAKES))
def test_a_mistake_is_told_with_its_key(more: str) -> None:
    with pytest.raises(SpecError) as told:
        found_in(listed(_TWO, more))
    assert MISTAKES[more] in str(told.value)


_VALUES = {
    "bandwidth: 10": "dimensions[1].bandwidth: found 10; expected a memory bandwidth with a unit",
    "bandwidth: {from: 9}": "bandwidth.from: found 9; expected a memory bandwidth with a unit",
    "bandwidth: {form: 9GB/s}": "found 9GB/s; unknown key; did you mean from? allowed: from, to",
    "bandwidth: {from: 9GB/s, to: 3GB/s}": "to: 3GB/s}; expected from <= to",
    "tensor: [0]": "design.strategy.tensor[0]: found 0; expected at least 1",
    "tensor: some": "design.strategy.tensor: found some; allowed: all",
    "tensor: [1], pipeline: [3]": "expected tensor and pipeline degrees that divide them",
    "tensor: [1], data: [32]": "and leave a data degree that is allowed",
    "tensor: [1], data: some": "design.strategy.data: found some; allowed: all",
    "tensor: [1], zero: [4]": "design.strategy.zero[0]: found 4; expected at most 3",
}


@pytest.mark.parametrize("value", list(_VALUES))
def test_a_value_of_the_wrong_form_is_one_mistake(value: str) -> None:
    key = value.split(":")[0]
    right = {"bandwidth": "bandwidth: 10GB/s", "tensor": "tensor: [1, 2, 4]"}[key]
    assert right in _TRANSFORMER
    with pytest.raises(SpecError) as told:
        found_in(_TRANSFORMER.replace(right, value))
    text = str(told.value)
    assert _VALUES[value] in text and "mistakes" not in text


def test_bounds_that_do_not_contradict_are_not_blamed() -> None:
    limits = "{sum: [d0], at_most: 400GB/s}, {sum: [d1], at_least: 300GB/s}"
    more = f"  constraints: {{total_bandwidth: 100GB/s, linear: [{limits}]}}"
    with pytest.raises(SpecError) as told:
        found_in(listed(_TWO, more))
    assert "400GB/s" not in str(told.value)


def test_sizes_whose_product_is_not_the_ranks() -> None:
    text = listed(_TWO).replace("ranks: 16", "ranks: 32")
    with pytest.raises(SpecError, match=r"expected sizes whose product is workload\.ranks, 32"):
        found_in(text)


def test_too_little_memory_is_told_with_what_would_do() -> None:
    with pytest.raises(SpecError) as told:
        found_in(_TRANSFORMER)
    text = str(told.value)
    assert "design.host.memory: found 1.00" in text
    assert "the smallest footprint is that of strategy tensor 4" in text
    found_in(_TRANSFORMER.replace("1GB}", "80GB}"))


def test_the_command_ends_with_bad_input(tmp_path: object) -> None:
    done = command("design", "no-such-design.yaml")
    assert done.returncode == 2
    assert "no-such-design.yaml" in done.stderr

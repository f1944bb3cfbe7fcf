"""Payloads whose right result is known: what is wrong must show."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from topologies.spec.workload_types import BitwiseOp, PairOp, ReduceOp  # noqa: E402
from workloads.execution.payload import numbers  # noqa: E402
from workloads.execution.programs.reductions import REDUCTIONS  # noqa: E402

_DTYPES = st.sampled_from([torch.float16, torch.bfloat16, torch.float32])

# Less than a row of elements, whole rows, and what is left
_COUNTS = (
    st.integers(1, 200) | st.integers(1, 4).map(lambda rows: 768 * rows) | st.integers(1, 3000)
)


_OPS = st.sampled_from(get_args(ReduceOp))
_INTEGERS = (torch.int16, torch.int32, torch.int64)


def _reduced(op: ReduceOp, inputs: list[Any]) -> Any:
    """Reduced one after the other, as hosts and switches do."""
    total = inputs[0].clone()
    for each in inputs[1:]:
        REDUCTIONS[op].combine(total, each)
    return total


@given(_COUNTS, st.integers(2, 128), st.integers(0, 100), st.data())
def test_what_the_inputs_reduce_to_is_expected(
    count: int, ranks: int, offset: int, data: st.DataObject
) -> None:
    op = data.draw(_OPS)
    floats = () if op in get_args(BitwiseOp) else (torch.float16, torch.float32, torch.float64)
    pairs = torch.int64, torch.float64
    dtype = data.draw(st.sampled_from(pairs if op in get_args(PairOp) else (*_INTEGERS, *floats)))
    inputs = [numbers.reduction_input(offset + count, r, ranks, dtype, op) for r in range(ranks)]
    numbers.check_reduction("x", _reduced(op, inputs)[offset:], ranks, op, offset)


@given(_COUNTS, st.integers(2, 128))
def test_sums_of_the_smallest_type_are_exact(count: int, ranks: int) -> None:
    inputs = [numbers.reduction_input(count, r, ranks, torch.bfloat16) for r in range(ranks)]
    numbers.check_reduction("x", _reduced("sum", inputs), ranks)


@given(_COUNTS, st.integers(2, 128), st.integers(0, 100), st.data())
def test_one_wrong_element_of_a_reduction_is_named(
    count: int, ranks: int, offset: int, data: st.DataObject
) -> None:
    inputs = [
        numbers.reduction_input(offset + count, r, ranks, torch.float32) for r in range(ranks)
    ]
    got = torch.stack(inputs).sum(0)[offset:]
    at = data.draw(st.integers(0, count - 1))
    got[at] = data.draw(st.sampled_from([-1.0, 1e9, float("nan")]))
    with pytest.raises(numbers.WrongResult, match=f"element {at} "):
        numbers.check_reduction("x", got, ranks, offset=offset)


@given(st.integers(2, 64), _OPS, st.data())
def test_a_missing_rank_shows(ranks: int, op: ReduceOp, data: st.DataObject) -> None:
    """Also where one that is counted twice makes no difference."""
    count = data.draw(st.integers(max(3, ranks), 400))
    wrong = data.draw(st.integers(0, ranks - 1))
    dtype = torch.int64 if op in get_args(PairOp) else torch.int32
    inputs = [numbers.reduction_input(count, r, ranks, dtype, op) for r in range(ranks)]
    with pytest.raises(numbers.WrongResult, match="element"):
        got = _reduced(op, inputs[:wrong] + inputs[wrong + 1 :])
        numbers.check_reduction("x", got, ranks, op)
    if op in ("sum", "bxor"):
        with pytest.raises(numbers.WrongResult, match="element"):
            numbers.check_reduction("x", _reduced(op, [*inputs, inputs[wrong]]), ranks, op)


@given(st.integers(1, 20), st.integers(2, 32), st.data())
def test_one_wrong_element_is_named(count: int, ranks: int, data: st.DataObject) -> None:
    me = data.draw(st.integers(0, ranks - 1))
    codes = numbers.codes_to(me, ranks)
    got = numbers.blocks(count, codes, torch.float32)
    numbers.check_blocks("x", got, codes)
    at = data.draw(st.integers(0, got.numel() - 1))
    got[at] += 1
    with pytest.raises(numbers.WrongResult, match=f"element {at} "):
        numbers.check_blocks("x", got, codes)


@given(st.integers(1, 20), st.integers(2, 32), st.data())
def test_swapped_blocks_show(count: int, ranks: int, data: st.DataObject) -> None:
    me = data.draw(st.integers(0, ranks - 1))
    a, b = data.draw(st.lists(st.integers(0, ranks - 1), min_size=2, max_size=2, unique=True))
    codes = numbers.codes_to(me, ranks)
    swapped = list(codes)
    swapped[a], swapped[b] = codes[b], codes[a]
    with pytest.raises(numbers.WrongResult):
        numbers.check_blocks("x", numbers.blocks(count, swapped, torch.float32), codes)


@given(st.integers(1, 20), st.integers(2, 16), _DTYPES)
def test_an_exchange_transposes_the_blocks(count: int, ranks: int, dtype: Any) -> None:
    sent = [numbers.blocks(count, numbers.codes_from(rank, ranks), dtype) for rank in range(ranks)]
    for me in range(ranks):
        received = torch.cat([x[me * count : (me + 1) * count] for x in sent])
        numbers.check_blocks("x", received, numbers.codes_to(me, ranks))

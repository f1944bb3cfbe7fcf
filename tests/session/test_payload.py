"""Payloads whose right result is known: what is wrong must show."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from workloads.execution import payload  # noqa: E402

_DTYPES = st.sampled_from([torch.float16, torch.bfloat16, torch.float32])

# Less than a row of elements, whole rows, and what is left
_COUNTS = (
    st.integers(1, 200) | st.integers(1, 4).map(lambda rows: 768 * rows) | st.integers(1, 3000)
)


@given(_COUNTS, st.integers(2, 128), st.integers(0, 100), _DTYPES)
def test_the_sum_of_the_inputs_is_the_expected_reduction(
    count: int, ranks: int, offset: int, dtype: Any
) -> None:
    inputs = [payload.reduction_input(offset + count, rank, dtype) for rank in range(ranks)]
    total = sum(x.to(torch.float32) for x in inputs).to(dtype)
    payload.check_reduction("x", total[offset:], ranks, offset)


@given(_COUNTS, st.integers(2, 128), st.integers(0, 100), st.data())
def test_one_wrong_element_of_a_reduction_is_named(
    count: int, ranks: int, offset: int, data: st.DataObject
) -> None:
    inputs = [payload.reduction_input(offset + count, rank, torch.float32) for rank in range(ranks)]
    got = torch.stack(inputs).sum(0)[offset:]
    at = data.draw(st.integers(0, count - 1))
    got[at] = data.draw(st.sampled_from([-1.0, 1e9, float("nan")]))
    with pytest.raises(payload.WrongResult, match=f"element {at} "):
        payload.check_reduction("x", got, ranks, offset)


@given(st.integers(3, 200), st.integers(2, 128), st.data())
def test_a_missing_or_repeated_rank_shows(count: int, ranks: int, data: st.DataObject) -> None:
    wrong = data.draw(st.integers(0, ranks - 1))
    total = sum(payload.reduction_input(count, rank, torch.float32) for rank in range(ranks))
    contribution = payload.reduction_input(count, wrong, torch.float32)
    for got in (total - contribution, total + contribution):
        with pytest.raises(payload.WrongResult, match="element"):
            payload.check_reduction("x", got, ranks)


@given(st.integers(1, 20), st.integers(2, 32), st.data())
def test_one_wrong_element_is_named(count: int, ranks: int, data: st.DataObject) -> None:
    me = data.draw(st.integers(0, ranks - 1))
    codes = payload.codes_to(me, ranks)
    got = payload.blocks(count, codes, torch.float32)
    payload.check_blocks("x", got, codes)
    at = data.draw(st.integers(0, got.numel() - 1))
    got[at] += 1
    with pytest.raises(payload.WrongResult, match=f"element {at} "):
        payload.check_blocks("x", got, codes)


@given(st.integers(1, 20), st.integers(2, 32), st.data())
def test_swapped_blocks_show(count: int, ranks: int, data: st.DataObject) -> None:
    me = data.draw(st.integers(0, ranks - 1))
    a, b = data.draw(st.lists(st.integers(0, ranks - 1), min_size=2, max_size=2, unique=True))
    codes = payload.codes_to(me, ranks)
    swapped = list(codes)
    swapped[a], swapped[b] = codes[b], codes[a]
    with pytest.raises(payload.WrongResult):
        payload.check_blocks("x", payload.blocks(count, swapped, torch.float32), codes)


@given(st.integers(1, 20), st.integers(2, 16), _DTYPES)
def test_an_exchange_transposes_the_blocks(count: int, ranks: int, dtype: Any) -> None:
    sent = [payload.blocks(count, payload.codes_from(rank, ranks), dtype) for rank in range(ranks)]
    for me in range(ranks):
        received = torch.cat([x[me * count : (me + 1) * count] for x in sent])
        payload.check_blocks("x", received, payload.codes_to(me, ranks))

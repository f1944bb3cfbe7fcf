"""Which tensors a kernel of Triton writes, as its source tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.virtual_gpu.interpreter.triton_kernels import written_by


@pytest.mark.parametrize(
    ("source", "written"),
    [
        (
            """
            @triton.jit
            def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
                at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                x = tl.load(x_ptr + at, mask=at < n)
                tl.store(out_ptr + at, x + tl.load(y_ptr + at), mask=at < n)
            """,
            {"out_ptr"},
        ),
        (
            """
            @triton.jit
            def norm(X, Y, W, stride, n, BLOCK: tl.constexpr):
                row = tl.program_id(0)
                X += row * stride
                place = Y + row * stride
                x = gelu(tl.load(X))
                block = tl.make_block_ptr(base=W, shape=(n,))
                tl.atomic_add(block, x)
                tl.store(place, x)
            """,
            {"Y", "W"},
        ),
        (
            """
            @triton.jit
            def hands_on(X, Y, n):
                other(Y + 1, n)
                helper(tl.load(X))
            """,
            {"Y"},
        ),
        (
            """
            def described(D, X):
                D.store([0], tl.load(X))
            """,
            {"D"},
        ),
    ],
)
def test_stores_and_atomics_are_found(source: str, written: set[str]) -> None:
    found = written_by(source)
    assert found is not None
    pointers = {"x_ptr", "y_ptr", "out_ptr", "X", "Y", "W", "D"}
    assert found & pointers == written


@pytest.mark.parametrize("source", ["", "def (:", "x = 1", "def a(): pass\ndef b(): pass"])
def test_what_is_no_kernel_tells_nothing(source: str) -> None:
    assert written_by(source) is None


@given(st.text(max_size=80))
def test_any_text_is_answered(text: str) -> None:
    found = written_by(text)
    assert found is None or isinstance(found, frozenset)

"""Columns come back as they went, and what the engine refuses it names."""

from __future__ import annotations

import resource

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.columns import Column, pack, unpack
from simulation.engine_process import run_engine
from simulation.failure import SimulationError

_COLUMNS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda found: np.array(found, np.int64)),
    st.lists(st.integers(-(2**31), 2**31 - 1)).map(lambda found: np.array(found, np.int32)),
    st.lists(st.floats(allow_nan=False)).map(lambda found: np.array(found, np.float64)),
)
_NAMES = st.text("abcdefghijklmnopqrstuvwxyz._", min_size=1, max_size=23)


@given(st.dictionaries(_NAMES, _COLUMNS), st.data())
def test_columns_come_back_as_they_went(columns: dict[str, Column], data: st.DataObject) -> None:
    whole = b"".join(bytes(part) for part in pack(columns))
    found = unpack(whole)
    assert {name: column.tolist() for name, column in found.items()} == {
        name: column.tolist() for name, column in columns.items()
    }
    assert all(found[name].dtype == columns[name].dtype for name in columns)
    with pytest.raises(SimulationError):
        unpack(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_what_columns_cannot_have_is_refused() -> None:
    with pytest.raises(ValueError, match="found numbers of type float32"):
        list(pack({"real": np.zeros(1, dtype=np.float32)}))
    with pytest.raises(ValueError, match="allowed 1 to 23 bytes"):
        list(pack({"a" * 24: np.zeros(1)}))


def test_an_engine_that_has_no_memory_says_what_it_lacks() -> None:
    """It sets 16 GiB aside for packets, and takes of them what it uses."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, before[1]))
    try:
        with pytest.raises(SimulationError, match="SIGABRT, as where memory is short"):
            run_engine({"port.kind": np.zeros(1, dtype=np.int64)})
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_what_the_engine_refuses_it_names() -> None:
    with pytest.raises(SimulationError, match=r"port\.kind: the scenario lacks this column"):
        run_engine({"tcp.control": np.array([1])})
    with pytest.raises(SimulationError, match=r"port\.kind: the column has another type"):
        run_engine({"port.kind": np.zeros(1)})

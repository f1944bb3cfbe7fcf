"""Tables of measured kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.models.kernel_table import read_kernel_table
from workloads.models.operation_times import OperationTimesError

HEAD = "operator,shapes,dtypes,time_ns\n"


def test_times_are_known_by_shapes_and_by_types(tmp_path: Path) -> None:
    table = tmp_path / "kernels.csv"
    table.write_text(
        HEAD + "aten::mm,64x128;128x32,BFloat16;BFloat16,700\naten::add,64x32;64x32,,90\n"
    )
    times = read_kernel_table(table)
    assert times.by_operation == {("aten::add", ((64, 32), (64, 32))): 90}
    assert times.typed_json() == [
        ["aten::add", ((64, 32), (64, 32)), "", 90],
        ["aten::mm", ((64, 128), (128, 32)), "BFloat16;BFloat16", 700],
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: found nothing; expected operator,shapes,dtypes,time_ns"),
        (HEAD + "mm,2x2,,1\n", "line 2: operator: found mm; expected a name such as aten::mm"),
        (HEAD + "aten::mm,2*2,,1\n", "line 2: shapes: found 2*2; expected shapes such as"),
        (HEAD + "aten::mm,2x2;2x2,Half,1\n", "line 2: dtypes: found Half; expected as many as"),
        (HEAD + "aten::mm,2x2,,1.5us\n", "line 2: time_ns: found 1.5us; expected nanoseconds"),
        (HEAD + "aten::mm,2x2,1\n", "line 2: found 3 cells; expected 4"),
    ],
)
def test_bad_tables_are_named(tmp_path: Path, text: str, said: str) -> None:
    table = tmp_path / "kernels.csv"
    table.write_text(text)
    with pytest.raises(OperationTimesError, match=r"kernels\.csv") as raised:
        read_kernel_table(table)
    assert said in str(raised.value)


@given(st.binary(max_size=200))
def test_anything_is_a_table_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    table = tmp_path_factory.mktemp("tables") / "kernels.csv"
    table.write_bytes(HEAD.encode() + data)
    try:
        read_kernel_table(table)
    except OperationTimesError as error:
        assert str(table) in str(error)

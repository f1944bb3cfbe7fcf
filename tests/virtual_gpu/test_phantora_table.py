"""Phantora's database of kernels' times."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.virtual_gpu.conftest import OnGpu
from workloads.models.operation_times import OperationTimes, OperationTimesError
from workloads.models.phantora_table import is_phantora, read_phantora, write_phantora
from workloads.models.times_file import read_times_of

A, B = ["bf16", [64, 128]], ["bf16", [128, 32]]


def _database(folder: Path, *rows: tuple[Any, int], verbose: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    with open(folder / "compute.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["op", "key", "nanos"] if verbose else ["key", "nanos"])
        for call, ns in rows:
            head = [next(iter(call))] if verbose else []
            writer.writerow([*head, json.dumps(call), ns])
    return folder


def test_calls_come_to_the_operators_that_run(tmp_path: Path) -> None:
    folder = _database(
        tmp_path / "db",
        ({"MM": [A, B]}, 700),
        ({"Linear": [["f32", [2, 8, 16]], ["f32", [4, 16]], ["f32", [4]]]}, 900),
        ({"MatMul": [["f32", [2, 3, 8, 16]], ["f32", [2, 3, 16, 8]]]}, 30),
        ({"Add": [["f32", [7]], {"shape": [], "dtype": "Double"}]}, 20),
        ({"ConvDType": [["bf16", [9]], "Float"]}, 10),
        ({"ConvDType": [["f32", [9]], "Float"]}, 0),
        ({"ForeachAddCMul_": [{"R": [2, [["f32", [5]]]]}] * 3}, 60),
        ({"Conv2d": {"input": ["f32", [1, 3, 8, 8]]}}, 5),
    )
    assert is_phantora(folder) and is_phantora(folder / "compute.csv")
    assert read_times_of(folder).typed == {
        ("aten::mm", ((64, 128), (128, 32)), "BFloat16;BFloat16"): 700,
        ("aten::addmm", ((4,), (16, 16), (16, 4)), "Float;Float;Float"): 900,
        ("aten::bmm", ((6, 8, 16), (6, 16, 8)), "Float;Float"): 30,
        ("aten::add", ((7,),), "Float"): 20,
        ("aten::copy_", ((9,), (9,)), "Float;BFloat16"): 10,
        ("aten::_foreach_addcmul_", ((5,),) * 6, ";".join(["Float"] * 6)): 60,
    }


def test_files_of_the_first_version_are_read(tmp_path: Path) -> None:
    call = {"MM": [{"shape": [2, 3], "dtype": "Half"}, {"shape": [3, 4], "dtype": "Half"}]}
    times = read_phantora(_database(tmp_path / "db", (call, 5), verbose=True))
    assert times.typed == {("aten::mm", ((2, 3), (3, 4)), "Half;Half"): 5}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    known = {
        ("aten::mm", ((64, 128), (128, 32)), "BFloat16;BFloat16"): 700,
        ("aten::mul", ((8, 8),), "Float"): 11,
        ("aten::copy_", ((9,), (9,)), "Float;BFloat16"): 10,
        ("aten::_softmax", ((4, 4),), "Float"): 12,
        ("aten::_foreach_addcdiv_", ((5,),) * 6, ";".join(["Float"] * 6)): 60,
    }
    more = {("aten::_scaled_dot_product_flash_attention", ((1, 2, 4, 8),) * 3, "Half;Half;Half"): 9}
    untyped: dict[tuple[str, tuple[tuple[int, ...], ...]], int] = {
        ("aten::mm", ((2, 2), (2, 2))): 1
    }
    left_out = write_phantora(
        tmp_path / "db", OperationTimes(untyped, of_device=True, typed=known | more), "NVIDIA H100"
    )
    assert read_phantora(tmp_path / "db").typed == known
    assert len(left_out) == 2
    assert any("_scaled_dot_product_flash_attention" in why for why in left_out)
    assert any("aten::mm: has no dtypes" in why for why in left_out)
    assert "- **GPU:** NVIDIA H100\n" in (tmp_path / "db/manifest.md").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: found nothing; expected key,nanos"),
        ("key,nanos\n{},1\n", "line 2: key: found {}; expected JSON of one call"),
        ('key,nanos\n"{""MM"":3}",1\n', "line 2: key: found MM with 3; expected a call"),
        ('key,nanos\n"{""Sqrt"":[""f32"",[2]]}",x\n', "expected a key and nanoseconds"),
    ],
)
def test_bad_databases_are_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "compute.csv").write_text(text)
    with pytest.raises(OperationTimesError, match=r"compute\.csv") as raised:
        read_phantora(tmp_path)
    assert said in str(raised.value)


@given(st.binary(max_size=200))
def test_anything_is_a_database_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    table = tmp_path_factory.mktemp("databases") / "compute.csv"
    table.write_bytes(b"key,nanos\n" + data)
    try:
        read_phantora(table)
    except OperationTimesError as error:
        assert str(table) in str(error)


def test_kernels_take_the_times_of_a_database(on_gpu: OnGpu, tmp_path: Path) -> None:
    half = ["f16", [1, 4, 64, 64]]  # more than has contents
    folder = _database(
        tmp_path / "db",
        ({"Linear": [["f32", [2, 8, 16]], ["f32", [4, 16]], ["f32", [4]]]}, 900),
        ({"SDPA": {"q": half, "k": half, "v": half, "causal": True, "gqa": False}}, 50),
        ({"Softmax": [["f32", [4, 4]], -1]}, 7),
        ({"ConvDType": [["f32", [9]], "BFloat16"]}, 3),
    )
    said = on_gpu(
        """
        import torch.nn.functional as F
        start = event(); end = event()
        start.record()
        with torch.no_grad():
            F.linear(torch.empty(2, 8, 16, device="cuda"), torch.empty(4, 16, device="cuda"),
                     torch.empty(4, device="cuda"))
            q = torch.empty(1, 4, 64, 64, device="cuda", dtype=torch.half)
            F.scaled_dot_product_attention(q, q, q, is_causal=True)
            torch.softmax(torch.empty(4, 4, device="cuda"), -1)
            torch.empty(9, device="cuda").to(torch.bfloat16)
        end.record(); torch.cuda.synchronize()
        print(round(start.elapsed_time(end) * 1e6), dict(gpu.not_in_table()))
        """,
        times=read_phantora(folder).typed_json(),
    )
    assert said.split(maxsplit=1) == ["960", "{}\n"]

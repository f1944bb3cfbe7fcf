"""`groundwire nccl` and `groundwire nccl-tests`: what they print, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from collectives.kinds import Kind
from groundwire.commands.nccl.choices import choices
from groundwire.commands.nccl.sizes import parse_size, sizes_of
from groundwire.commands.nccl.tests import nccl_tests

SPEC = """\
fabric: {kind: rails, server: dgx-h100, servers: 2}
workload: {kind: collectives, ranks: 16, operations: [{kind: barrier}]}
"""


@pytest.fixture
def spec_path(tmp_path: Path) -> Path:
    path = tmp_path / "two.yaml"
    path.write_text(SPEC)
    return path


def test_sizes_are_those_of_nccl_tests() -> None:
    assert parse_size("128M") == 128 << 20
    assert sizes_of(Kind.ALL_REDUCE, "8", "64", 2, None, 16, 4) == (8, 16, 32, 64)
    assert sizes_of(Kind.ALL_REDUCE, "1K", "3K", 2, "1K", 16, 4) == (1024, 2048, 3072)
    # 1 KB is 16 shards of 16 elements; what does not divide is rounded down.
    assert sizes_of(Kind.ALL_GATHER, "1000", "1000", 2, None, 16, 4) == (960,)


@pytest.mark.parametrize("given", [("x", "1K", 2), ("1K", "8", 2), ("8", "1K", 1)])
def test_wrong_sizes(given: tuple[str, str, int]) -> None:
    with pytest.raises(typer.BadParameter, match="allowed"):
        sizes_of(Kind.ALL_REDUCE, *given, None, 16, 4)


def test_choices_and_a_log(spec_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert choices(spec_path, "1K", "1M", 32) == 0
    text = capsys.readouterr().out
    assert "NCCL INFO Channel 15/16 :" in text
    assert "AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}" in text
    log = spec_path.with_name("real.log")
    log.write_text(text)
    assert choices(spec_path, against=log) == 0
    log.write_text(text.replace("Algo TREE", "Algo RING"))
    assert choices(spec_path, against=log) == 1
    log.write_text("nothing\n")
    assert choices(spec_path, against=log) == 2


def test_nvls_where_it_is_asked_for_or_logged(
    spec_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = ["host.preset=epyc-vm"]
    assert choices(spec_path, "1G", "1G", set_=busy) == 0
    assert "NVLS" not in capsys.readouterr().out
    assert choices(spec_path, "1G", "1G", nvls=True, set_=busy) == 0
    text = capsys.readouterr().out
    assert "AllReduce: 1073741824 Bytes -> Algo NVLS_TREE proto SIMPLE" in text
    log = spec_path.with_name("real.log")
    log.write_text(text)
    assert choices(spec_path, against=log, set_=busy) == 0


def test_choices_as_json(spec_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert choices(spec_path, "1K", "1K", 2, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["channels"] == len(found["rings"]) == 16


def test_table_of_predictions(capsys: pytest.CaptureFixture[str]) -> None:
    code = nccl_tests(
        "all_reduce_perf", "1K", "64K", 8, run_to="0", predictor="alpha-beta", as_json=True
    )
    assert code == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["size_bytes"] for row in rows] == [1024, 8192, 65536]
    assert all(row["time_us"] is None and row["predicted_us"] > 0 for row in rows)
    assert rows[0]["model_us"] == pytest.approx(25.27, abs=0.01)


def test_unknown_program() -> None:
    with pytest.raises(typer.BadParameter, match="all_reduce_perf"):
        nccl_tests("all_perf")

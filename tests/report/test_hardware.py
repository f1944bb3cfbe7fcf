"""docs/hardware*.md are what their kept figures say, and these are what the model says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.hardware import gloo, pipelines, simulations, training, training_runs
from benchmarks.hardware.fits import FITTED, FITTED_ON
from benchmarks.hardware.kernels import kernels
from benchmarks.hardware.measurements import measurements
from benchmarks.hardware.page import CAUSES, DOCS, GENERATIONS, pages
from benchmarks.hardware.predictions import KEPT, priced, told
from benchmarks.hardware.rows import rows
from collectives.kinds import Kind
from collectives.nccl.tuner import Tuner


def test_pages_are_made_of_kept_figures() -> None:
    made = pages()
    assert {*made} == {*DOCS.glob("hardware*.md")}
    for place, text in made.items():
        assert place.read_text(encoding="utf-8") == text


def test_each_row_is_on_a_page() -> None:
    known = {gpu for gpus in GENERATIONS.values() for gpu in gpus}
    assert {one.gpu for one in measurements()} <= known


def test_enough_rows() -> None:
    found = measurements()
    assert len(found) >= 40
    assert len({one.source for one in found}) >= 8
    assert {one.table for one in found} == set(CAUSES)


@pytest.mark.parametrize("table", ["d10", "d30", "d32", "d35a8"])
def test_kept_predictions_are_the_models(table: str) -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    rows = {one.id: one for one in measurements()}
    mine = [one for one in rows.values() if one.table == table]
    fitted = [rows[FITTED_ON[table]]] if table in FITTED_ON else []
    found = {one.id: priced(one, one.communicator()) for one in [*mine, *fitted]}
    for one in mine:
        assert kept[one.id] == told(one, rows, found)


def test_one_row_a_source_is_fitted() -> None:
    rows = {one.id: one for one in measurements()}
    fitted = [rows[row] for row in FITTED]
    assert len({one.source for one in fitted}) == len(fitted)
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    for one in fitted:
        assert kept[one.id]["time_us"] == pytest.approx(one.time_us, abs=0.06)
        smallest = min(other.size_bytes for other in rows.values() if other.table == one.table)
        assert one.size_bytes == smallest
    # A table's number is of a row that was measured on the same GPU.
    for table, row in FITTED_ON.items():
        assert {one.gpu for one in rows.values() if one.table == table} == {rows[row].gpu}


def test_kept_times_of_packets_are_its_own() -> None:
    choices = json.loads(KEPT.read_text(encoding="utf-8"))
    kept = json.loads(simulations.KEPT.read_text(encoding="utf-8"))
    assert kept.keys() == {one.id for one in measurements()}
    for one in measurements():
        if one.id in ("d01.01", "d03.01"):
            assert kept[one.id] == simulations.simulated(one, choices[one.id])


def test_kept_rates_of_training_are_the_models() -> None:
    kept = json.loads(training.KEPT.read_text(encoding="utf-8"))
    runs = {run.id: run for run in training_runs.runs()}
    assert kept.keys() == runs.keys()
    fitted = [run for run in runs.values() if run.fitted]
    assert len({run.source for run in fitted}) == len(fitted), "one row a source is fitted"
    again = training.rate(runs["t6.6"], kept["t6.6"]["slower"])
    assert again == pytest.approx(kept["t6.6"]["value"], rel=1e-4)


def test_the_kept_ratio_of_pipelines_is_the_models() -> None:
    kept = json.loads(pipelines.KEPT.read_text(encoding="utf-8"))
    assert pipelines.ratio() == pytest.approx(kept["ratio"], rel=1e-3)
    # Bubbles alone: 8 microbatches in 8 + 7 turns, or in 8 + 7/2.
    assert 1.2 < kept["ratio"] < (8 + 7) / (8 + 7 / 2)


def test_kernels_are_those_that_sources_tell() -> None:
    """The fitted number stretches tensor cores alone; recomputing adds; float8 is faster, by less
    than the ratio of the peaks."""
    runs = {run.id: run for run in training_runs.runs()}
    once, twice, thrice = (kernels(runs["t1.2"], slower) for slower in (1.0, 2.0, 3.0))
    assert thrice.forward_s - twice.forward_s == pytest.approx(twice.forward_s - once.forward_s)
    assert twice.forward_s < 2 * once.forward_s
    assert twice.optimizer_s == once.optimizer_s
    none, full = (kernels(replace(runs["t1.2"], recompute=kind), 1.0) for kind in ("none", "full"))
    assert full.backward_s - none.backward_s == pytest.approx(none.forward_s)
    assert none.backward_s < once.backward_s < full.backward_s
    faster = kernels(replace(runs["t1.3"], recompute="none"), 1.0)
    assert none.forward_s / 2 < faster.forward_s < none.forward_s


def test_kept_times_of_gloo_are_the_models() -> None:
    kept = json.loads(gloo.KEPT.read_text(encoding="utf-8"))
    found = {row.id: row for row in gloo.rows()}
    assert kept.keys() == {*found, gloo.RATIO}
    fitted = [row for row in found.values() if row.fitted]
    assert len({row.source for row in fitted}) == len(fitted), "one row a source is fitted"
    again = gloo.predicted_us(found["g2.4"], 1e9 * kept["g2.4"]["copy_gbytes_per_s"])
    assert again == pytest.approx(kept["g2.4"]["time_us"], rel=0.01)


def test_choices_that_were_logged() -> None:
    """NCCL 2.27.7 on B200 (stas00/ml-engineering, network/README.md): a ring for 4 and 5 GPUs of a
    server, NVLS for 6 to 8; on 8 H200 Ring with LL to 1 MiB and NVLS from 2 MiB on."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    for one in measurements():
        if one.table == "d29" and one.nvls:
            assert kept[one.id]["algorithm"] == ("Ring" if one.gpus < 6 else "NVLS")
    row = next(one for one in measurements() if one.table == "d30" and one.nvls)
    tuner = Tuner(row.communicator())
    for power in range(15, 21):
        choice = tuner.choose(Kind.ALL_REDUCE, 1 << power)
        assert (choice.algorithm, choice.protocol) == ("Ring", "LL")
    for power in range(21, 34):
        choice = tuner.choose(Kind.ALL_REDUCE, 1 << power)
        assert (choice.algorithm, choice.protocol) == ("NVLS", "Simple")


def test_rows_are_read_by_their_columns(tmp_path: Path) -> None:
    text = gloo.FILE.read_text(encoding="utf-8")
    copied = tmp_path / "rows.csv"
    copied.write_text(text, encoding="utf-8")
    assert rows(copied, gloo.Row) == gloo.rows()
    copied.write_text(text.replace("time_us", "time", 1), encoding="utf-8")
    with pytest.raises(ValueError, match=r"rows\.csv: expected the columns .*'time_us'"):
        rows(copied, gloo.Row)

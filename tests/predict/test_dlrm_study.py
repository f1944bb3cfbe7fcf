"""The DLRM case study's ready specs: their model, and what is predicted against bounds."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.predict.interface import load_predictor
from analysis.predict.setting import setting_of_spec
from analysis.studies.charts.series import bars, lines
from collectives.kinds import Kind
from groundwire.pipeline import resolve
from tests.session.command import groundwire
from topologies.spec.layers_section import LayersWorkload
from topologies.spec.spec import Spec, load_spec
from workloads.models.planned import planned_calls

READY = Path(__file__).resolve().parents[2] / "topologies"
SYSTEMS = ["flat100g", "flat800g", "hier", "hieropt"]
RATE_BPS = {"flat100g": 100e9, "flat800g": 800e9, "hier": 100e9, "hieropt": 100e9}


@cache
def spec_of(system: str, size: str = "") -> Spec:
    return load_spec(READY / f"dlrm-{size}{system}.yaml")


def table_of(system: str, size: str = "") -> LayersWorkload:
    workload = spec_of(system, size).workload
    assert isinstance(workload, LayersWorkload)
    return workload


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_model_is_the_published_one(system: str) -> None:
    """A gradient has 2 bytes for each weight of the published shapes."""
    table = table_of(system)
    bottom = [1600 * 1024, *5 * [1024 * 1024], 1024 * 64]
    top = [65 * 64 * 2048, *10 * [2048 * 2048], 2048]
    reduced = [layer.weight_gradient.size_bytes for layer in table.layers]
    assert reduced == [0, *(2 * weights for weights in bottom + top)]
    assert sum(reduced) == 114_823_168
    embedding = table.layers[0]
    for part in (embedding.forward, embedding.input_gradient):
        assert (part.collective, part.size_bytes) == ("all_to_all", 512 * 64 * 64 * 2)
    for layer, weights in zip(table.layers[1:], bottom + top, strict=True):
        for part in (layer.forward, layer.input_gradient, layer.weight_gradient):
            assert part.compute_ns == pytest.approx(2 * 512 * weights / 60e12 * 1e9, abs=1)
    computing_ns = sum(
        part.compute_ns
        for layer in table.layers
        for part in (layer.forward, layer.input_gradient, layer.weight_gradient)
    )
    assert computing_ns == pytest.approx(3.36e6, rel=2e-3)
    assert table.last_bottom_layer == 7
    assert table.ranks == 128


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_small_systems_are_a_32nd(system: str) -> None:
    for layer, small in zip(
        table_of(system).layers, table_of(system, "small-").layers, strict=True
    ):
        assert small.name == layer.name
        for part in ("forward", "input_gradient", "weight_gradient"):
            mine, whole = getattr(small, part), getattr(layer, part)
            assert mine.compute_ns == whole.compute_ns // 32
            assert (mine.collective, mine.size_bytes) == (whole.collective, whole.size_bytes // 32)


def predicted_ns(system: str, **overrides: str) -> dict[str, float]:
    """The time of each collective of a small system's first pass alone, by `flow`."""
    spec = spec_of(system, "small-")
    if overrides:
        keys = {key.replace("__", "."): value for key, value in overrides.items()}
        spec = spec.with_overrides(keys)
    setting, flow = setting_of_spec(spec), load_predictor("flow")
    known: dict[Any, float] = {}
    for planned in planned_calls(spec):
        if ".0." in planned.name and planned.call not in known:
            known[planned.call] = flow.predict(setting, planned.call)
    return {p.name: known[p.call] for p in planned_calls(spec) if p.call in known}


@cache
def small(system: str) -> dict[str, float]:
    return predicted_ns(system)


def gradients_ns(found: dict[str, float]) -> float:
    return sum(ns for name, ns in found.items() if name.startswith("weight_gradient.0."))


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_prediction_beats_the_bounds(system: str) -> None:
    """16 ranks, 4 servers of 4: 2S (N - 1) / N over all, or across servers, a quarter of S in
    HierOpt; and of an AlltoAll what leaves the rank's server."""
    sizes = [layer.weight_gradient.size_bytes for layer in table_of(system, "small-").layers]
    share = {"hier": 3 / 4, "hieropt": 3 / 4 / 4}.get(system, 15 / 16)
    found, rate_bps = small(system), RATE_BPS[system]
    assert gradients_ns(found) >= 2 * 8 * sum(sizes) * share / rate_bps * 1e9
    leaves = (15 if system.startswith("flat") else 12) / 16
    exchanged_ns = 8 * (4_194_304 // 32) * leaves / rate_bps * 1e9
    for phase in ("forward", "input_gradient"):
        assert found[f"{phase}.0.0.Embedding"] >= exchanged_ns


def test_the_orders_that_the_study_has() -> None:
    totals = {system: gradients_ns(small(system)) for system in SYSTEMS}
    assert totals["hieropt"] < totals["hier"]
    assert totals["flat800g"] < totals["flat100g"]
    for system in SYSTEMS:
        found = {n: ns for n, ns in small(system).items() if n.startswith("weight_gradient.0.")}
        assert max(found, key=found.__getitem__) == "weight_gradient.0.8.Top0"


def test_injection_slows_flat_more_than_hierarchical() -> None:
    slowed = {
        system: gradients_ns(predicted_ns(system, collectives__endpoint_delay="10us"))
        - gradients_ns(small(system))
        for system in ("flat100g", "hieropt")
    }
    assert slowed["flat100g"] > slowed["hieropt"] > 0


@pytest.mark.long
@pytest.mark.parametrize("system", ["flat100g", "hieropt"])
def test_a_small_system_runs_and_no_pass_beats_its_bounds(system: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    spec = READY / f"dlrm-small-{system}.yaml"
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out)
    assert done.returncode == 0, done.stderr
    found = json.loads((out / "result.json").read_text())
    assert found["valid"] is True
    rows = [
        c for c in found["collectives"] if c["kind"] == Kind.ALL_REDUCE and ".align" not in c["id"]
    ]
    assert len(rows) == 2 * 19
    sizes = [layer.weight_gradient.size_bytes for layer in table_of(system, "small-").layers]
    share = 15 / 16 if system == "flat100g" else 3 / 4 / 4
    # Two passes, whose gradients all go over the same port.
    (iteration,) = found["iterations"]
    assert iteration["duration_ns"] >= 2 * 2 * 8 * sum(sizes) * share / 100e9 * 1e9


def test_the_study_starts_from_the_ready_systems() -> None:
    """On the Flat systems it names the all-reduce otherwise; its programs are the same."""
    study = yaml.safe_load((READY.parent / "studies" / "dlrm-case-study.yaml").read_text())
    base = spec_of("flat100g", "small-")
    systems = study["factors"]["system"]
    assert sorted(name.lower() for name in systems) == sorted(SYSTEMS)
    for name, sets in systems.items():
        found, ready = resolve(base, sets), spec_of(name.lower(), "small-")
        known, wanted = found.to_dict(), ready.to_dict()
        for one in (known, wanted):
            one["name"] = ""
            del one["collectives"]["all_reduce"]
        assert known == wanted
        assert programs_of(found) == programs_of(ready)


def programs_of(spec: Spec) -> list[list[tuple[int, int, object]]]:
    """Each chunk of each collective: its first element, its length, its steps."""
    return [
        [(c.first, c.count, c.program.participants) for c in planned.call.schedule.chunks]
        for planned in planned_calls(spec)
        if planned.call.schedule is not None
    ]


def test_figures_have_every_series_and_place() -> None:
    series = {"Flat": {"1": 100.0, "4": 20.0}, "Hier": {"1": 30.0, "4": 0.0}}
    for drawing in (lines(series, "by chunks", True), bars(series, "by system")):
        text = str(drawing.render())
        for name in ("Flat", "Hier", "1", "4"):
            assert f">{name}</text>" in text
        assert "nan" not in text

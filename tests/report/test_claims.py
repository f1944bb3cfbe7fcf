"""The page of claims: made of kept results, by rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.claims import __main__ as command
from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import Bench, Experiment, Kept, read_kept, rounded
from benchmarks.claims.page import PAGE, render, row
from benchmarks.claims.rules import (
    Above,
    AtLeast,
    AtMost,
    Draws,
    FigureMissing,
    Rule,
    Within,
    verdict,
)
from benchmarks.claims.sources import CLAIMS, PARTS

_CHEAP = [each for each in command.experiments() if each.cheap]


def test_the_page_is_what_the_kept_files_make_of_it() -> None:
    assert PAGE.read_text() == render(PARTS), "python -m benchmarks.claims --page"


def test_there_are_rows_enough_and_each_name_once() -> None:
    names = [claim.name for claim in CLAIMS]
    assert len(names) >= 50
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("experiment", command.experiments(), ids=lambda each: each.name)
def test_an_experiment_has_its_file(experiment: Experiment) -> None:
    kept = read_kept(experiment.file)
    if kept is None:
        assert any(
            "has not been run" in row(c)["here"] for c in CLAIMS if c.experiment == experiment
        )
        return
    assert (kept.experiment, kept.command, kept.by) == (
        experiment.name,
        experiment.command,
        experiment.by,
    )
    assert kept.figures and kept.versions["groundwire"]


@pytest.mark.parametrize("experiment", _CHEAP, ids=lambda each: each.name)
def test_a_cheap_experiment_has_the_same_figures_again(
    experiment: Experiment, tmp_path: Path
) -> None:
    kept, again = read_kept(experiment.file), experiment.perform(tmp_path)
    assert kept is not None
    assert again.spec_hash == kept.spec_hash, f"{experiment.command} has other specs by now"
    assert _numbers(again.figures) == pytest.approx(_numbers(kept.figures), rel=1e-5)


def _numbers(value: Any, path: str = "") -> dict[str, float]:
    """The numbers of nested figures by their paths."""
    if isinstance(value, dict):
        return {k: v for n, e in value.items() for k, v in _numbers(e, f"{path}.{n}").items()}
    if isinstance(value, list):
        return {f"{path}.{n}": each for n, each in enumerate(value)}
    return {} if isinstance(value, str) else {path: value}


_FIGURES = {"ratio": 2.0, "draws": [1.0, 2.0, 4.0], "us": {"a": 3.0, "b": 5.0}}


@pytest.mark.parametrize(
    ("rule", "held"),
    [
        (Within("ratio", 1.9, 0.06), [True]),
        (Within("ratio", 1.9, 0.05), [False]),
        (AtLeast("draws", 2.0), [False, True, True]),
        (AtMost("draws", 2.0), [True, True, False]),
        (Above("us.b", "us.a"), [True]),
        (Above("us.a", "us.b"), [False]),
    ],
)
def test_a_rule_judges_each_draw(rule: Rule, held: list[bool]) -> None:
    assert rule.held(_FIGURES) == held


@pytest.mark.parametrize(
    ("rules", "conditions", "said"),
    [
        ([AtLeast("ratio", 2)], "", "holds"),
        ([AtLeast("ratio", 2)], "a choice", "under conditions"),
        ([AtLeast("ratio", 3)], "", "does not hold"),
        ([AtLeast("ratio", 3)], "a choice", "does not hold"),
        ([AtLeast("ratio", 2), AtLeast("ratio", 3)], "", "under conditions"),
        ([AtLeast("draws", 2)], "", "under conditions"),
    ],
)
def test_the_verdict_follows_from_rules(rules: list[Rule], conditions: str, said: str) -> None:
    assert verdict(rules, _FIGURES, conditions) == said


def test_a_figure_that_is_missing_is_named() -> None:
    with pytest.raises(FigureMissing, match=r"us\.c: found no 'c'"):
        AtLeast("us.c", 1).held(_FIGURES)


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_draws_show_the_median_and_the_range(values: list[int]) -> None:
    shown = f"{Draws(values):.0f}"
    if min(values) == max(values):
        assert shown == str(values[0])
    else:
        assert f"({min(values)} to {max(values)}, {len(values)} draws)" in shown


def test_a_claim_has_a_test_or_a_reason() -> None:
    with pytest.raises(ValueError, match="an experiment with rules, or the reason"):
        Claim("x", "a sentence", "a source", "1")
    untested = Claim("x", "a sentence", "a source", "1", untested="nobody can")
    assert (untested.verdict(None), untested.here(None)) == ("not tested", "nobody can")


def _once(bench: Bench) -> dict[str, Any]:
    bench.take_text("a spec")
    return {"value": 1 / 3, "names": {"1": "a"}, "draws": [2 / 3, 1.0]}


def test_an_experiment_keeps_its_figures(tmp_path: Path) -> None:
    kept = Experiment("once", "arithmetic", _once).perform(tmp_path)
    assert kept.figures == {"value": 0.333333, "names": {"1": "a"}, "draws": [0.666667, 1.0]}
    assert (kept.specs, kept.command) == (1, "make claims ONLY=once")
    kept.write(tmp_path / "kept" / "once.json")
    assert read_kept(tmp_path / "kept" / "once.json") == kept
    assert read_kept(tmp_path / "none.json") is None
    (tmp_path / "wrong.json").write_text(json.dumps({"figure": 1}))
    with pytest.raises(ValueError, match=r"wrong\.json"):
        read_kept(tmp_path / "wrong.json")


def test_figures_are_written_with_six_digits() -> None:
    assert rounded({"a": [1234567.89, 5], "b": 0.1234567, "c": True}) == {
        "a": [1234570.0, 5],
        "b": 0.123457,
        "c": True,
    }


def test_what_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--only", "x-y-z"]) == 2
    assert "--only: found ['x-y-z'], allowed are dlrm-small," in capsys.readouterr().err
    claim = Claim(
        "c", "s", "p", "1", experiment=Experiment("nowhere", "arithmetic", _once),
        shows="{value}", rules=(AtLeast("value", 1),),
    )  # fmt: skip
    assert row(claim)["here"] == "its experiment has not been run"
    assert row(claim)["verdict"] == "not tested"


def test_a_list_has_a_verdict_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CLAIMS)
    assert any("make claims ONLY=themis-balance" in line for line in lines)


def test_kept_has_all_that_a_reader_needs() -> None:
    assert set(Kept.__dataclass_fields__) == {
        "experiment", "command", "by", "specs", "spec_hash", "versions", "figures",
    }  # fmt: skip

"""Why a study's predictions are off: each emulated case predicted four times.

    .venv/bin/python -m benchmarks.study_errors DIR [--predictor flow]

DIR is what `groundwire study --out` was. A study predicts from the spec: which paths ECMP draws it
does not know, and collectives in flight together it slows down by their times alone. Here the paths
are also those of the run, and the messages are also followed one by one. The tables are Markdown.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from analysis.predict.added_up import AddedUp
from analysis.predict.interface import Predictor, Setting, load_predictor
from analysis.predict.planned_run import predict_workload
from analysis.predict.setting import setting_of, setting_of_spec
from analysis.results.run_result import error_summary
from analysis.runs.run import Run, load_run

WAYS = (
    ("as the study", False, False),
    ("messages followed", False, True),
    ("paths known", True, False),
    ("both", True, True),
)
"""Name, whether paths are the run's, whether messages are followed."""
_FACTOR = "factor_"


def errors_of(run: Run, predictor: Predictor) -> tuple[float, ...]:
    """The errors of the mean iteration, for each of `WAYS`."""
    rows = run.result["iterations"]
    measured_ns = sum(row["duration_ns"] for row in rows) / len(rows)
    settings = {False: setting_of_spec(run.spec), True: setting_of(run)}
    return tuple(
        _iteration_ns(run, settings[known], predictor, follow) / measured_ns - 1
        for _, known, follow in WAYS
    )


def _iteration_ns(run: Run, setting: Setting, predictor: Predictor, follow: bool) -> int:
    asked = predictor if follow else AddedUp(predictor)
    return predict_workload(run.spec, setting, asked).iterations[0].duration_ns


def table(title: str, rows: Iterable[tuple[str, Sequence[tuple[float, ...]]]]) -> str:
    """A row for each group of cases: geometric mean error, and between which errors they lie."""
    lines = [f"| {title} | number | {' | '.join(name for name, *_ in WAYS)} |", "|---" * 6 + "|"]
    for name, errors in rows:
        cells = []
        for of_way in zip(*errors, strict=True):
            mean = error_summary(of_way)["geomean"]
            cells.append(f"{mean:.1%} ({min(of_way):+.1%} to {max(of_way):+.1%})")
        lines.append(f"| {name} | {len(errors)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--predictor", default="flow")
    given = parser.parse_args()
    document = json.loads((given.directory / "study.json").read_text())
    predictor = load_predictor(given.predictor)
    found: list[tuple[dict[str, str], tuple[float, ...]]] = []
    for case in document["cases"]:
        place = given.directory / "cases" / case["directory"]
        if case["how"] == "emulated" and (place / "result.json").exists():
            levels = {
                name.removeprefix(_FACTOR): str(level)
                for name, level in case.items()
                if name.startswith(_FACTOR)
            }
            found.append((levels, errors_of(load_run(place), predictor)))
    if not found:
        raise SystemExit(f"{given.directory}: no emulated case")
    print(table("cases", [("all", [errors for _, errors in found])]))
    for factor in found[0][0]:
        groups: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        for levels, errors in found:
            groups[levels[factor]].append(errors)
        if len(groups) > 1:
            print(f"\n{table(factor, groups.items())}")


if __name__ == "__main__":
    main()

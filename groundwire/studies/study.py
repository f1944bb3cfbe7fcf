"""A study from its file to its page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from analysis.studies.cases import StudyCases
from analysis.studies.effects import effects_of
from analysis.studies.findings import findings
from analysis.studies.page import write_page
from analysis.studies.table import NoParquet, render_table_csv, study_table, write_parquet
from emulator.output_directory import alone_in
from emulator.session import KernelKind
from groundwire.studies.dask_engine import DaskEngine
from groundwire.studies.engine import Engine
from groundwire.studies.outcomes import collect, is_done
from groundwire.studies.planning import plan_study
from groundwire.studies.watch import JobsWatch, StudyProgress
from groundwire.studies.workers.worker import remove_parts

CASES = "cases"


@dataclass(frozen=True)
class Study:
    """A study that has come to its end: its cases, its directory, what it says in sentences, and
    why there is no table.parquet, if there is none."""

    cases: StudyCases
    directory: Path
    findings: tuple[str, ...]
    no_parquet: str | None = None

    @property
    def failed(self) -> int:
        """How many cases have no outcome."""
        return sum(case.failure is not None for case in self.cases.cases)

    @property
    def invalid(self) -> int:
        """How many runs are not valid."""
        return sum(case.valid is False for case in self.cases.cases)


def study(
    path: str | Path,
    *,
    out: str | Path | None = None,
    kernel: KernelKind = "virtual",
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Callable[[StudyProgress], None] = lambda progress: None,
    engine: Engine | None = None,
) -> Study:
    """Do what is not yet done of a study, and write its table, page and figures into `out`
    (default: runs/NAME).

    Everything is checked before the first job. Jobs that are done, of this or an earlier time, are
    kept; a job that fails ends no other, and is done again the next time. `scheduler` is the
    address of a Dask scheduler; without one, `workers` processes run here (None: one per core, as
    memory allows). `engine` does the jobs in place of Dask.

    Raises SpecError for a study that cannot be, listing every mistake; EngineError, DirectoryBusy.
    """
    plan = plan_study(path, kernel)
    directory = Path("runs") / plan.file.sections.name if out is None else Path(out)
    cases = directory / CASES
    with alone_in(directory, "study"):
        cases.mkdir(exist_ok=True)
        remove_parts(cases)
        shutil.copyfile(path, directory / "study.yaml")
        watch = JobsWatch(plan.jobs, cases, progress)
        chosen = engine or DaskEngine(scheduler, workers)
        left = [job for job in plan.jobs if not is_done(job, cases)]
        watch.begin()
        if left:
            chosen(left, cases, watch.tell)
        return _write(collect(plan, cases, watch.failures), directory)


def _write(found: StudyCases, directory: Path) -> Study:
    table = study_table(found)
    (directory / "table.csv").write_text(render_table_csv(table), encoding="utf-8")
    no_parquet = None
    try:
        write_parquet(table, directory / "table.parquet")
    except NoParquet as error:
        (directory / "table.parquet").unlink(missing_ok=True)
        no_parquet = str(error)
    write_page(found, directory)
    said = findings(found, effects_of(found, found.response))
    document = study_document(found, said)
    (directory / "study.json").write_text(json.dumps(document, indent=1) + "\n")
    return Study(found, directory, said, no_parquet)


def study_document(found: StudyCases, said: tuple[str, ...]) -> dict[str, object]:
    """study.json: the findings, the effects on each response, and every case."""
    effects = {response: effects_of(found, response) for response in found.responses}
    return {
        "name": found.name,
        "predictor": found.predictor,
        "findings": list(said),
        "responses": {
            response: {
                "cases": one.cases,
                "mean": one.mean,
                "balanced": one.variance.balanced,
                "sum_of_squares": one.variance.total,
                "terms": [
                    {
                        "term": list(term.names),
                        "sum_of_squares": term.sum_of_squares,
                        "degrees_of_freedom": term.degrees_of_freedom,
                        "share": term.share,
                    }
                    for term in one.variance.terms
                ],
                "everything_else": one.variance.rest,
                "effects": {
                    main.factor: {level.level: level.mean for level in main.levels}
                    for main in one.mains
                },
            }
            for response, one in effects.items()
            if one is not None
        },
        "cases": study_table(found).records(),
    }

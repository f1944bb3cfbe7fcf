"""A design from its file to its directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.design.confirmed import Confirmation
from analysis.design.findings import (
    best_table,
    clusters_table,
    findings,
    front_table,
    memory_table,
    points_table,
    sensitivity_table,
)
from analysis.design.page import write_page
from analysis.design.search import Found, search
from analysis.studies.table import render_table_csv
from emulator.output_directory import alone_in
from emulator.session import KernelKind
from groundwire.designs.confirm import confirm, confirmation_document
from groundwire.designs.emulated_point import NotEmulated, winning_spec
from groundwire.studies.engine import Engine, JobEvent
from topologies.spec.design.document import load_design


@dataclass(frozen=True)
class Design:
    """A design that has come to its end: what the search found, what emulation says of it, and its
    directory. `no_winner` says why there is no winner.yaml, if there is none."""

    found: Found
    confirmation: Confirmation | None
    directory: Path
    no_winner: str | None = None

    @property
    def findings(self) -> tuple[str, ...]:
        """In sentences, what matters most first."""
        return findings(self.found)


def design(
    path: str | Path,
    *,
    out: str | Path | None = None,
    confirm_around: int | None = None,
    kernel: KernelKind = "virtual",
    engine: Engine | None = None,
    workers: int | None = None,
    searching: Callable[[int, int], None] = lambda done, total: None,
    emulating: Callable[[JobEvent], None] = lambda event: None,
) -> Design:
    """Search the design in a file, and write its tables, page and winning spec into `out` (default:
    runs/NAME). `confirm_around` emulates the winner, the baseline and so many points around it.

    Raises SpecError for a file that cannot be, and for a design of which no point can be, naming
    the constraint that cannot hold; NotEmulated, EngineError, DirectoryBusy.
    """
    file = load_design(path)
    directory = Path("runs") / file.sections.name if out is None else Path(out)
    found = search(file, searching)
    with alone_in(directory, "design"):
        made = _write(found, None, directory)
        if confirm_around is None:
            return made
        confirmation = confirm(
            found,
            confirm_around,
            directory,
            kernel=kernel,
            engine=engine,
            workers=workers,
            progress=emulating,
        )
        return _write(found, confirmation, directory)


def _write(found: Found, confirmation: Confirmation | None, directory: Path) -> Design:
    (directory / "design.yaml").write_text(found.file.to_yaml(), encoding="utf-8")
    points, front = points_table(found), front_table(found)
    (directory / "points.csv").write_text(render_table_csv(points), encoding="utf-8")
    (directory / "front.csv").write_text(render_table_csv(front), encoding="utf-8")
    no_winner = None
    winner = directory / "winner.yaml"
    try:
        winner.write_text(winning_spec(found).to_yaml(), encoding="utf-8")
    except NotEmulated as error:
        winner.unlink(missing_ok=True)
        no_winner = str(error)
    write_page(found, confirmation, directory)
    made = Design(found, confirmation, directory, no_winner)
    text = json.dumps(design_document(made), indent=1)
    (directory / "design.json").write_text(text + "\n", encoding="utf-8")
    return made


def design_document(made: Design) -> dict[str, Any]:
    """design.json: the findings, the best point, multipliers, the front, and the confirmation."""
    found = made.found
    best = found.best
    clusters = clusters_table(found)
    return {
        "name": found.file.sections.name,
        "objective": found.file.sections.design.objective,
        "findings": list(made.findings),
        "best": {
            "chosen": best.point.chosen,
            "time_ns": best.time_ns,
            "compute_ns": best.work.demand.compute_ns,
            "exposed_ns": best.exposed_ns,
            "cost": best.cost,
            "footprint_bytes": best.work.footprint_bytes,
            "gap": best.gap,
            "bandwidth": best_table(found).records(),
        },
        "sensitivities": sensitivity_table(found).records(),
        "memory": memory_table(found).records(),
        "clusters": [] if clusters is None else clusters.records(),
        "front": front_table(found).records(),
        "points": {
            "all": found.points,
            "solved": len(found.solved),
            "pruned": found.pruned,
            "excluded": {miss.constraint: count for miss, count in found.impossible},
        },
        "confirmation": (
            None if made.confirmation is None else confirmation_document(made.confirmation)
        ),
        "no_winner": made.no_winner,
    }

"""`groundwire validate`: what is wrong with files, before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from groundwire.commands.console.overrides import parse_overrides
from groundwire.commands.run import SetOption
from groundwire.studies.study_file import load_study
from topologies.spec.design.document import load_design
from topologies.spec.document import FileKind, file_kind, read_document
from topologies.spec.errors import Problem, SpecError
from topologies.spec.spec import Spec, load_spec


def validate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Specs, studies and designs.")
    ],
    set_: SetOption = None,
) -> int:
    """Say of each file what it is, or every mistake in it with its line. Nothing is run.

    Exit code 2 says that a file has a mistake.
    """
    overrides = parse_overrides(set_ or [])
    wrong = False
    for file in files:
        try:
            print(f"{file}: {_described(file, overrides)}")
        except SpecError as error:
            wrong = True
            print(f"error: {error}", file=sys.stderr)
    return 2 if wrong else 0


def _described(file: Path, overrides: Mapping[str, str]) -> str:
    """Raises SpecError."""
    try:
        kind = file_kind(read_document(file.read_text(encoding="utf-8"), str(file)).data)
    except (OSError, UnicodeDecodeError):
        kind = None  # told as of a spec
    if overrides and kind in (FileKind.STUDY, FileKind.DESIGN):
        key, value = next(iter(overrides.items()))
        problem = Problem((), f"--set {key}={value}", "expected --set for specs alone")
        raise SpecError(str(file), (problem,))
    if kind is FileKind.STUDY:
        study = load_study(file)
        factors = ", ".join(factor.name for factor in study.factors)
        return f"a study of {_described_spec(study.base)}; factors {factors}"
    if kind is FileKind.DESIGN:
        load_design(file)
        return "a design"
    return _described_spec(load_spec(file, overrides=overrides))


def _described_spec(spec: Spec) -> str:
    fabric = spec.plan.fabric
    does = f"{len(spec.jobs)} jobs" if spec.jobs else spec.workload.kind
    return (
        f"{fabric.kind}, {len(fabric.hosts)} hosts, {len(fabric.switches)} switches, "
        f"{len(fabric.links)} links; {does}, {spec.ranks} ranks; {spec.transport_words}"
    )

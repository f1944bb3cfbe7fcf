"""A design's file: the training, what may be chosen, constraints, objective and prices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import Field, ValidationError

from topologies.spec.design.models import (
    ClosedModel,
    HostSection,
    RecommenderModel,
    StrategySection,
    TransformerModel,
)
from topologies.spec.design.network import ConstraintsSection, DesignPrices, DimensionSection
from topologies.spec.document import Document, FileKind, read_document, refuse_other_kind
from topologies.spec.errors import Key, Problem, SpecError, problems_of, shown, suggestion
from topologies.spec.fabric_section import Integer
from topologies.spec.layers_section import LayersWorkload
from topologies.spec.queue_section import SpecSection
from topologies.spec.run_sections import Fraction, VirtualSpec
from topologies.spec.transports.tcp.section import TcpTransport
from topologies.spec.workload_section import CollectiveOperation, CollectivesWorkload
from topologies.units import RateBps, SizeBytes

Objective = Literal["time", "cost", "time-x-cost"]
MOST_CONFIRMED_RANKS = 64

TrainingModel: TypeAlias = TransformerModel | RecommenderModel
DesignWorkload = Annotated[
    CollectivesWorkload | LayersWorkload | TrainingModel, Field(discriminator="kind")
]


class ConfirmSection(SpecSection):
    """How points are emulated: on at most `ranks`, the fastest link at `rate`, the largest message
    of `size`, cut into `chunks`. A gain that falls short of its prediction by more than `tolerance`
    is refuted."""

    ranks: Integer = Field(default=MOST_CONFIRMED_RANKS, ge=2, le=MOST_CONFIRMED_RANKS)
    rate_bps: RateBps = Field(default=10 * 10**9, alias="rate", gt=0)
    size_bytes: SizeBytes = Field(default=16 * 2**20, alias="size", ge=2**16, le=2**30)
    chunks: Integer = Field(default=32, ge=1, le=1024)
    tolerance: Fraction = 0.08


class DesignSection(SpecSection):
    """The `design` section. `dimensions` are those of the network, the innermost first."""

    dimensions: tuple[DimensionSection, ...] = Field(min_length=1, max_length=6)
    objective: Objective = "time"
    constraints: ConstraintsSection = ConstraintsSection()
    prices: DesignPrices = DesignPrices()
    strategy: StrategySection = StrategySection()
    host: HostSection = HostSection()
    confirm: ConfirmSection = ConfirmSection()


class DesignSections(SpecSection):
    """All keys of a design's file. `transport` and `virtual` are for what is emulated."""

    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    seed: Integer = Field(default=1, ge=0, lt=2**32)
    workload: DesignWorkload
    design: DesignSection
    transport: TcpTransport = TcpTransport()
    virtual: VirtualSpec = VirtualSpec()


@dataclass(frozen=True)
class DesignFile:
    """A design's file, read and checked. `source` names it in messages."""

    source: str
    sections: DesignSections
    document: Document

    def problem(self, key: Key, found: str, expected: str) -> SpecError:
        """The mistake at a key, with its line."""
        return SpecError(self.source, (Problem(key, found, expected, self.document.line_of(key)),))

    def to_yaml(self) -> str:
        """The file with every default filled in."""
        text: str = yaml.safe_dump(
            self.sections.model_dump(mode="json", by_alias=True), sort_keys=False, width=100
        )
        return text


def load_design(path: str | Path) -> DesignFile:
    """Read a design's file; without a `name` it has the file's. Raises SpecError with every mistake
    in it: the file, line, key, what was found and what is allowed."""
    path, source = Path(path), str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        problem = Problem((), f"a file that cannot be read ({told})", "expected a YAML file")
        raise SpecError(source, (problem,)) from error
    return parse_design(text, source, path.resolve().parent, path.stem)


def parse_design(
    text: str, source: str = "design", folder: Path | None = None, name: str = "design"
) -> DesignFile:
    """The design in a YAML text; files that it names lie in `folder`. Raises SpecError."""
    document = read_document(text, source)
    raw = document.data
    refuse_other_kind(raw, FileKind.DESIGN, source)
    if not isinstance(raw, dict):
        expected = "expected a mapping with the keys workload and design"
        raise SpecError(source, (Problem((), shown(raw), expected),))
    raw.setdefault("name", name)
    workload = raw.get("workload")
    if isinstance(workload, dict) and isinstance(workload.get("path"), str) and folder:
        workload["path"] = str(folder / workload["path"])
    try:
        sections = DesignSections.model_validate(raw)
    except ValidationError as error:
        problems = problems_of(error, DesignSections, raw)
    else:
        problems = _disagreements(sections, raw)
    if problems:
        at = tuple(replace(p, line=document.line_of(p.key)) for p in problems)
        raise SpecError(source, at)
    return DesignFile(source, sections, document)


def _disagreements(sections: DesignSections, raw: dict[str, Any]) -> list[Problem]:
    design, workload = sections.design, sections.workload
    names = [dimension.name for dimension in design.dimensions]
    problems = [
        Problem(("design", "dimensions", i, "name"), name, "expected a name of its own")
        for i, name in enumerate(names)
        if name in names[:i]
    ]
    for index, linear in enumerate(design.constraints.linear):
        for position, name in enumerate(linear.sum):
            if name not in names or name in linear.sum[:position]:
                key: Key = ("design", "constraints", "linear", index, "sum", position)
                expected = f"{suggestion(name, names)}expected a dimension, each once: "
                problems.append(Problem(key, name, expected + ", ".join(names)))
    if design.objective == "cost" and design.constraints.time_ns is None:
        problems.append(
            Problem(
                ("design", "objective"),
                "cost",
                "expected constraints.time with it: a time to reach",
            )
        )
    if not isinstance(workload, ClosedModel):
        for part in ("strategy", "host"):
            if part in raw["design"]:
                expected = "expected it with workload.kind transformer or recommender only"
                problems.append(Problem(("design", part), "a section", expected))
    if isinstance(workload, RecommenderModel) and "strategy" in raw["design"]:
        expected = "expected it with workload.kind transformer only"
        problems.append(Problem(("design", "strategy"), "a section", expected))
    if workload.listed is not None:
        for index, operation in enumerate(workload.listed.operations):
            if not isinstance(operation, CollectiveOperation):
                problems.append(
                    Problem(
                        ("workload", "operations", index, "kind"),
                        operation.kind,
                        "expected a collective without a root: a design's model knows no other",
                    )
                )
    return problems

"""A spec: everything that a run depends on, in one immutable value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, Field, PlainValidator, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from topologies.compute_spec import ComputeSpec
from topologies.fabric_spec import FabricSpec, GraphSpec, Integer
from topologies.overrides import apply_overrides
from topologies.queue_spec import Section, marks
from topologies.run_spec import (
    CaptureSpec,
    CountersSpec,
    FaultSpec,
    TransportSpec,
    VirtualSpec,
)
from topologies.spec_checks import check
from topologies.spec_error import Problem, SpecError, problems_of, shown
from topologies.spec_file import Document, read_document
from topologies.workload_spec import WorkloadSpec

__all__ = ["Spec", "SpecError", "load_spec", "parse_dict", "parse_spec"]


def _check_name(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name) is None:
        raise ValueError("expected up to 64 letters, digits, dots, - or _, as in a file's name")
    return name


def _parse_placement(value: object) -> str | dict[int, str]:
    expected = "expected linear, random, strided, or a host for every rank ({0: h3, 1: h0})"
    if value in ("linear", "random", "strided"):
        return str(value)
    if not isinstance(value, dict) or not value:
        raise ValueError(expected)
    for rank, host in value.items():
        if isinstance(rank, bool) or not isinstance(rank, int) or not isinstance(host, str):
            raise ValueError(expected)
    return dict(sorted(value.items()))


def _parse_scale(value: object) -> int | str:
    if value == "auto":
        return "auto"
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**6:
        raise ValueError("expected auto, or a whole number from 1 (unscaled) to 1000000")
    return value


class Spec(Section):
    """A validated spec. Sections that are checked against each other agree (`spec_checks`).

    `placement` is a policy's name or a host per rank. `scale` is `auto` or the factor by which the
    native kernel slows the target fabric down; the virtual kernel always runs at 1.
    """

    name: Annotated[str, AfterValidator(_check_name)]
    seed: Integer = Field(default=1, ge=0, lt=2**32)
    fabric: FabricSpec
    transport: TransportSpec = TransportSpec()
    placement: Annotated[str | dict[int, str], PlainValidator(_parse_placement)] = "linear"
    workload: WorkloadSpec
    compute: ComputeSpec = ComputeSpec()
    capture: CaptureSpec = CaptureSpec()
    predict: tuple[str, ...] = ("alpha-beta",)
    scale: Annotated[int | str, PlainValidator(_parse_scale)] = "auto"
    faults: tuple[FaultSpec, ...] = ()
    counters: CountersSpec = CountersSpec()
    virtual: VirtualSpec = VirtualSpec()

    @model_validator(mode="after")
    def _agree(self) -> Spec:
        problems = check(self)
        if problems:
            raise PydanticCustomError(
                "spec_sections", "{text}", {"text": str(problems[0]), "problems": problems}
            )
        return self

    @property
    def ecn(self) -> bool:
        """Whether TCP negotiates ECN: `transport.ecn`, else when dctcp or a queue needs it."""
        if self.transport.ecn is not None:
            return self.transport.ecn
        queues = [self.fabric.queue, *self.fabric.queues.values()]
        if isinstance(self.fabric, GraphSpec):
            queues += [link.queue for link in self.fabric.links if link.queue is not None]
        return self.transport.congestion_control == "dctcp" or any(marks(q) for q in queues)

    def to_dict(self) -> dict[str, Any]:
        """Plain data with every default filled in."""
        plain: dict[str, Any] = _kind_first(self.model_dump(mode="python", by_alias=True))
        return plain

    def to_yaml(self) -> str:
        """The resolved spec, every default filled in; `parse_spec` gives an equal Spec back."""
        text: str = yaml.safe_dump(
            self.to_dict(),
            sort_keys=False,
            default_flow_style=None,
            width=100,
        )
        return text

    def with_overrides(self, overrides: Mapping[str, str], source: str = "override") -> Spec:
        """This spec with dotted keys set, as `{"fabric.k": "8", "fabric.queue.kind": "droptail"}`.

        Values are YAML. Setting a section's `kind` to another one keeps of that section only the
        keys that every kind has. Raises SpecError as `load_spec` does.
        """
        raw = self.model_dump(mode="python", by_alias=True, exclude_unset=True)
        return _validate(apply_overrides(type(self), raw, overrides, source), source, None)


def _kind_first(value: Any) -> Any:
    """Plain data in which a section begins with its kind, as people write them."""
    if isinstance(value, dict):
        first = {"kind": value["kind"]} if "kind" in value else {}
        return first | {key: _kind_first(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_kind_first(entry) for entry in value]
    return value


def parse_spec(text: str, source: str = "spec") -> Spec:
    """The spec in a YAML text. Raises SpecError, whose messages begin with `source`."""
    document = read_document(text, source)
    return _validate(document.data, source, document)


def parse_dict(raw: dict[str, Any], source: str = "spec") -> Spec:
    """The spec in plain data, such as `Spec.to_dict` gives. Raises SpecError."""
    return _validate(raw, source, None)


def load_spec(path: str | Path) -> Spec:
    """The spec in a YAML file; without a `name` it has the file's.

    Raises SpecError naming the file, and of every mistake in it the line, the key, what was found
    and what is allowed.
    """
    path, source = Path(path), str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(source, (Problem((), "no such file", "expected a YAML file"),)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(source, (Problem((), str(error), "expected a YAML file"),)) from error
    document = read_document(text, source)
    raw = document.data
    if isinstance(raw, dict):
        raw.setdefault("name", path.stem)
        workload = raw.get("workload")
        if isinstance(workload, dict) and isinstance(workload.get("path"), str):
            workload["path"] = str(path.resolve().parent / workload["path"])
    return _validate(raw, source, document)


def _validate(raw: object, source: str, document: Document | None) -> Spec:
    if not isinstance(raw, dict):
        expected = "expected a mapping with keys such as name, fabric and workload"
        raise SpecError(source, (Problem((), shown(raw), expected),))
    try:
        return Spec.model_validate(raw)
    except ValidationError as error:
        problems = problems_of(error, Spec, raw)
    if document is not None:
        problems = [replace(p, line=document.line_of(p.key)) for p in problems]
    raise SpecError(source, tuple(problems))

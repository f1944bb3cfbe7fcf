"""A spec: everything that a run depends on, in one immutable value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError, model_validator
from pydantic_core import PydanticCustomError

from topologies.plan import Plan
from topologies.spec.checks import check
from topologies.spec.document import Document, FileKind, read_document, refuse_other_kind
from topologies.spec.errors import Problem, SpecError, problems_of, shown
from topologies.spec.fabric_section import SERVERS_KINDS
from topologies.spec.foreign_files import foreign_file
from topologies.spec.jobs.beside import jobs_beside
from topologies.spec.jobs.section import JobSpec
from topologies.spec.overrides import apply_overrides
from topologies.spec.sections import Sections

__all__ = ["Spec", "SpecError", "load_spec", "parse_dict", "parse_spec"]


class Spec(Sections):
    """A validated spec: its sections agree with each other (`spec_checks`)."""

    @model_validator(mode="after")
    def _agree(self) -> Spec:
        without = self.only_workload is None and not self.jobs
        problems = [_NO_WORKLOAD] if without else check(self)
        if problems:
            raise PydanticCustomError(
                "spec_sections", "{text}", {"text": str(problems[0]), "problems": problems}
            )
        return self

    @cached_property
    def plan(self) -> Plan:
        """The fabric, the routes and the hosts of the ranks, made once."""
        return Plan.of(self)

    @cached_property
    def parts(self) -> dict[str, Spec]:
        """The jobs that do something, by name, each as a spec with one workload. A spec with one
        workload is its only part, by its own name."""
        if not self.jobs:
            return {self.name: self}
        return {job.name: self.of_job(job) for job in self.jobs if not job.idle}

    def of_job(self, job: JobSpec) -> Spec:
        """One of the jobs as a spec of its own, its hosts given and its repetitions spelt out."""
        raw = self.to_dict()
        hosts = self.plan.job(job.name).hosts
        plain = next(each for each in raw.pop("jobs") if each["name"] == job.name)
        raw["name"] = job.name
        raw["placement"] = dict(enumerate(hosts))
        raw["workload"] = plain["workload"] | job.repeated
        raw["compute"] = plain["compute"] or raw["compute"]
        raw["collectives"] = plain["collectives"] or raw["collectives"]
        raw["class"] = raw["class"] if plain["class"] is None else plain["class"]
        raw["faults"] = [f for f in raw["faults"] if f.get("job") in (None, job.name)]
        if self.aggregation is not None:
            raw["beside"] = [
                each.model_dump(mode="python", by_alias=True)
                for each in jobs_beside(self, job, self.plan.jobs)
            ]
            raw["aggregation"]["quota"] = job.slots or self.aggregation.quota
        return parse_dict(raw, f"{self.name}, job {job.name}")

    @property
    def program_files(self) -> tuple[Path, ...]:
        """The files that algorithms of collectives are in, and NCCL's (its tuner's, a topology,
        graphs)."""
        raw = self.to_dict()
        found = [entry["file"] for entry in _algorithm_entries(raw) if "file" in entry]
        for section in _collectives_sections(raw):
            named = [section["env"].get(name) for name in _FILES_OF_NCCL]
            found += [each for each in (section["tuner"], *named) if each is not None]
        return tuple(map(Path, found))

    def to_dict(self) -> dict[str, Any]:
        """Plain data with every default filled in."""
        plain: dict[str, Any] = _with_kind_first(self.model_dump(mode="python", by_alias=True))
        del plain["workload" if self.jobs else "jobs"]
        if not self.beside:
            del plain["beside"]
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
        completed = apply_overrides(type(self), raw, overrides, source)
        try:
            return _validate(completed, source, None)
        except SpecError as error:
            raise SpecError(_with_set(source, overrides, error), error.problems) from None


_FILES_OF_NCCL = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
"""Variables that name files."""
_NO_WORKLOAD = Problem(("workload",), "nothing", "this key is required")


def _with_set(source: str, overrides: Mapping[str, str], error: SpecError) -> str:
    """The source with what was set, where a mistake is at a key that was not."""
    places = [".".join(map(str, problem.key)) for problem in error.problems]
    if all(any(_one_in_other(place, key) for key in overrides) for place in places):
        return source
    return f"{source} {', '.join(f'{key}={value}' for key, value in overrides.items())}"


def _one_in_other(place: str, key: str) -> bool:
    return f"{place}.".startswith(f"{key}.") or f"{key}.".startswith(f"{place}.")


def _with_kind_first(value: Any) -> Any:
    """Plain data in which a section begins with its kind, as people write them."""
    if isinstance(value, dict):
        first = {"kind": value["kind"]} if "kind" in value else {}
        return first | {key: _with_kind_first(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_kind_first(entry) for entry in value]
    return value


def parse_spec(text: str, source: str = "spec") -> Spec:
    """The spec in a YAML text. Raises SpecError, whose messages begin with `source`."""
    document = read_document(text, source)
    return _validate(document.data, source, document)


def parse_dict(raw: dict[str, Any], source: str = "spec") -> Spec:
    """The spec in plain data, such as `Spec.to_dict` gives. Raises SpecError."""
    return _validate(raw, source, None)


def _describe_unreadable(error: OSError | UnicodeDecodeError) -> str:
    match error:
        case FileNotFoundError():
            return "no such file"
        case IsADirectoryError():
            return "a directory"
        case UnicodeDecodeError():
            return f"bytes that are no UTF-8 text, at offset {error.start}"
    return f"a file that cannot be read ({error.strerror})"


def load_spec(
    path: str | Path,
    sections: Mapping[str, object] | None = None,
    overrides: Mapping[str, str] | None = None,
    overridden_by: str = "--set",
) -> Spec:
    """The spec in a YAML file; without a `name` it has the file's. `sections` stand in for those of
    the file, which need not be there. `overrides` are dotted keys, as `Spec.with_overrides` takes
    them; with them the file alone need not be a whole spec.

    Raises SpecError naming the file, and of every mistake in it the line, the key, what was found
    and what is allowed; for a mistake of an override it names `overridden_by`.
    """
    path, source = Path(path), str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = Problem((), _describe_unreadable(error), "expected a YAML file")
        raise SpecError(source, (problem,)) from error
    if (foreign := foreign_file(text)) is not None:
        raise SpecError(source, (Problem((), foreign.name, f"expected a spec: {foreign.instead}"),))
    document = read_document(text, source)
    raw = document.data
    refuse_other_kind(raw, FileKind.SPEC, source)
    if isinstance(raw, dict):
        raw.setdefault("name", path.stem)
        if sections and "workload" in sections:
            raw.pop("jobs", None)
        raw.update(sections or {})
        fabric = raw.get("fabric")
        if isinstance(fabric, dict) and isinstance(fabric.get("path"), str):
            fabric["path"] = str(path.resolve().parent / fabric["path"])
        for workload in _workloads(raw):
            for key in ("path", "groups", "memory"):
                if isinstance(workload.get(key), str):
                    workload[key] = str(path.resolve().parent / workload[key])
            if workload.get("kind") == "command":
                below = workload.get("directory", ".")
                if isinstance(below, str):
                    workload["directory"] = str((path.resolve().parent / below).resolve())
                if isinstance(workload.get("charge_by"), str):
                    workload["charge_by"] = str(path.resolve().parent / workload["charge_by"])
        for section in _collectives_sections(raw):
            if isinstance(section.get("tuner"), str):
                section["tuner"] = str(path.resolve().parent / section["tuner"])
            env = section.get("env")
            for name in _FILES_OF_NCCL:
                if isinstance(env, dict) and isinstance(env.get(name), str):
                    env[name] = str(path.resolve().parent / env[name])
        for entry in _algorithm_entries(raw):
            if isinstance(entry.get("file"), str):
                entry["file"] = str(path.resolve().parent / entry["file"])
    if not overrides or not isinstance(raw, dict):
        return _validate(raw, source, document)
    try:
        alone = _validate(raw, source, document)
    except SpecError as error:
        completed = apply_overrides(Spec, raw, overrides, overridden_by)
        try:
            return _validate(completed, f"{source} with {overridden_by}", None)
        except SpecError as left:
            # A mistake in the file is told with its lines, unless an override has changed it.
            told = {(problem.key, problem.found) for problem in error.problems}
            if {(problem.key, problem.found) for problem in left.problems} <= told:
                raise error from None
            by = f"{source} with {_with_set(overridden_by, overrides, left)}"
            raise SpecError(by, left.problems) from None
    return alone.with_overrides(overrides, source=overridden_by)


def _algorithm_entries(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The entries that name a collective's algorithm: by kind, and of single operations."""
    for section in _collectives_sections(raw):
        yield from (entry for entry in section.values() if isinstance(entry, dict))
    for workload in _workloads(raw):
        operations = workload.get("operations")
        for operation in operations if isinstance(operations, list) else []:
            if isinstance(operation, dict) and isinstance(operation.get("program"), dict):
                yield operation["program"]


def _workloads(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The sections of workloads: the spec's own, or those of its jobs."""
    return _sections(raw, "workload")


def _collectives_sections(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The sections of collectives: the spec's own, and those of its jobs."""
    return _sections(raw, "collectives")


def _sections(raw: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    jobs = raw.get("jobs")
    around = [raw, *(jobs if isinstance(jobs, list) else [])]
    for each in around:
        if isinstance(each, dict) and isinstance(each.get(name), dict):
            yield each[name]


def _with_servers(raw: dict[str, Any]) -> dict[str, Any]:
    """The spec with the GPUs of a program's hosts in its fabric, where this can have servers and
    says nothing of how many GPUs each has."""
    fabric = raw.get("fabric")
    if not isinstance(fabric, dict) or "gpus_per_host" in fabric:
        return raw
    if fabric.get("kind") not in SERVERS_KINDS:
        return raw
    asked = (workload.get("gpus_per_host") for workload in _workloads(raw))
    gpus = next((each for each in asked if isinstance(each, int)), 1)
    return raw if gpus == 1 else raw | {"fabric": fabric | {"gpus_per_host": gpus}}


def _validate(raw: object, source: str, document: Document | None) -> Spec:
    if not isinstance(raw, dict):
        expected = "expected a mapping with keys such as name, fabric and workload"
        raise SpecError(source, (Problem((), shown(raw), expected),))
    raw = _with_servers(raw)
    try:
        return Spec.model_validate(raw)
    except ValidationError as error:
        problems = problems_of(error, Spec, raw)
    if not {"workload", "jobs"} & set(raw) and _NO_WORKLOAD not in problems:
        problems.append(_NO_WORKLOAD)
    if document is not None:
        problems = [replace(p, line=document.line_of(p.key)) for p in problems]
    raise SpecError(source, tuple(problems))

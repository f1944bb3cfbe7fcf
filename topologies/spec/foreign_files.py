"""Files of other programs: told by how they begin, and read in place of a section's keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from topologies.installation import page
from topologies.spec.errors import Problem

_LOOKED_AT = 4096


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A format that is not the one asked for: its name, and what to do."""

    name: str
    instead: str

    def __str__(self) -> str:
        return f"{self.name}; {self.instead}"


class ForeignFileError(ValueError):
    """A file that cannot be read: where, what was found and what is allowed."""

    def __init__(self, place: str, found: str, expected: str) -> None:
        super().__init__(f"{place}: found {found}, expected {expected}")
        self.place = place
        self.found = found
        self.expected = expected


def text_of(path: Path, expected: str, error: type[ForeignFileError]) -> str:
    """The text of a file, which is `expected`. Raises `error`."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as caught:
        found = caught.strerror or type(caught).__name__
        raise error(str(path), found, expected) from caught
    except UnicodeDecodeError as caught:
        raise error(str(path), f"no UTF-8 at byte {caught.start}", expected) from caught


def keys_with_file(
    data: dict[str, Any], section: str, read: Callable[[Path], dict[str, Any]]
) -> dict[str, Any]:
    """The keys of a section, and for those that are not given the ones of the file that its `path`
    names. Raises PydanticCustomError with the file's mistake."""
    try:
        found = read(Path(data["path"]))
    except ForeignFileError as error:
        problem = Problem(
            (section, "path"), f"{error.found} ({error.place})", f"expected {error.expected}"
        )
        raise PydanticCustomError(
            "foreign_file", "{text}", {"text": str(error), "problems": [problem]}
        ) from error
    return found | {key: value for key, value in data.items() if key != "path"}


_GRAPH = "name it in a spec: fabric: {kind: graph, path: FILE} (" + page("spec-fabric.md") + ")"
_READ = "groundwire trace import reads it"

MSCCL = ForeignFile("MSCCL's XML", "name it in a spec: {algorithm: msccl, file: FILE}")
GOAL = ForeignFile("LogGOPSim's GOAL", _READ)
KINETO = ForeignFile("a trace of Kineto (torch.profiler's export_chrome_trace)", _READ)
SIMAI = ForeignFile("a workload of SimAI", _READ)
NS3_FLOWS = ForeignFile("flows of ns-3 (HPCC)", _READ)
CONNECTIONS = ForeignFile("htsim's connection matrix", _READ)
AICB = ForeignFile("a workload of AICB", _READ)
NCCL_LOG = ForeignFile("a debug log of NCCL", _READ)

_BY_KEY = {
    "traceEvents": KINETO,
    "gpus": ForeignFile(
        "an execution plan of MSCCL++", "MSCCL's XML is read, as an algorithm of a spec"
    ),
}
"""Formats of JSON, by a key of its outermost object."""

_BY_BEGINNING: tuple[tuple[str, ForeignFile], ...] = (
    (r"(\s|//[^\n]*\n|/\*.*?\*/)*num_ranks\b", GOAL),
    (r"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<graphml\b", ForeignFile("GraphML", _GRAPH)),
    (
        r"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<algo\b",
        MSCCL,
    ),
    *((rf"\s*\{{.*?\"{key}\"\s*:", found) for key, found in _BY_KEY.items()),
    (r"(\s|#[^\n]*\n)*Nodes \d+\s*\nConnections \d+", CONNECTIONS),
    (r"\s*(HYBRID_TRANSFORMER\w*\s|MICRO\b)", SIMAI),
    (
        r"[^\n]*\n?comm_type,comm_group,",
        AICB,
    ),
    (
        r"\s*\d+ \d+ \d+( \d+ \d+ \S+)?\s*\n\s*(\d+ ?)*\n\s*\d+ \d+ \d+(\.\d+)?[GM]bps ",
        ForeignFile("a topology of ns-3 (HPCC, SimAI)", _GRAPH),
    ),
    (
        r"\s*\d+\s*\n\s*\d+ \d+ \d+ \d+ \d+( \d+(\.\d+)?)?\s*(\n|$)",
        NS3_FLOWS,
    ),
    (r".*?[^\s:]+:\d+:\d+ \[\d+\] NCCL [A-Z]", NCCL_LOG),
)


def foreign_document(document: Mapping[str, object]) -> ForeignFile | None:
    """The same of a JSON object that has been read."""
    return next((found for key, found in _BY_KEY.items() if key in document), None)


def foreign_file(data: str | bytes) -> ForeignFile | None:
    """Which format of others a file has, by its beginning; None where it is not known."""
    head = data[:_LOOKED_AT]
    text = head.decode("utf-8", "replace") if isinstance(head, bytes) else head
    for pattern, found in _BY_BEGINNING:
        if re.match(pattern, text, re.DOTALL):
            return found
    return None

"""A kind that lacks a part in a room is an error when the room is imported."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FunctionType
from typing import get_args

import pytest

from analysis.decode.transports import DECODED_TRANSPORTS
from analysis.predict.transports import PREDICTED_TRANSPORTS
from analysis.results.rows import ResultRow
from emulator.ports.disciplines import BY_KIND
from emulator.transports import EMULATED_TRANSPORTS
from topologies.registration import (
    IncompleteRegistration,
    complete,
    named,
    parts,
    section_parts,
)
from topologies.spec.queue_section import DISCIPLINES
from topologies.spec.run_sections import TRANSPORT_SECTIONS
from topologies.spec.transports import TRANSPORTS
from topologies.spec.transports.section import TransportSection
from topologies.spec.workload_section import WORKLOAD_SECTIONS
from topologies.spec.workloads import WORKLOADS, WorkloadParts, named_parts
from workloads.execution.rank_work import RankWork
from workloads.execution.transports import RANK_TRANSPORTS
from workloads.execution.transports.interface import RankTransport
from workloads.models.guest_work import GuestWork

_WHOLE = """
from workloads.execution.transports.interface import RankTransport
class Part(RankTransport):
    def place(self, text): return None
PART = Part()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that can be imported as gw_room_new."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gw_room_new", raising=False)
    return tmp_path / "gw_room_new.py"


def test_a_part_is_found_by_the_name_of_its_kind(module: Path) -> None:
    module.write_text(_WHOLE)
    assert parts(["new"], "gw_room_{}", RankTransport)["new"].place("") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            _WHOLE.replace("PART =", "OTHER ="),
            "gw_room_new: found no PART; expected one, a RankTransport",
        ),
        ("PART = 3\n", "gw_room_new: found PART = 3; expected a RankTransport"),
        (_WHOLE.replace("place", "spot"), "gw_room_new: .*abstract.*place"),
    ],
)
def test_a_part_that_lacks_something_is_named(module: Path, text: str, said: str) -> None:
    module.write_text(text)
    with pytest.raises(IncompleteRegistration, match=said):
        parts(["new"], "gw_room_{}", RankTransport)


def test_a_part_that_is_not_there_is_named() -> None:
    with pytest.raises(IncompleteRegistration, match="gw_room_absent: found no such module"):
        parts(["absent"], "gw_room_{}", RankTransport)


def test_a_part_that_imports_what_is_not_there_says_so(module: Path) -> None:
    module.write_text("import gw_nowhere\n")
    with pytest.raises(ModuleNotFoundError, match="gw_nowhere"):
        parts(["new"], "gw_room_{}", RankTransport)


def test_a_section_says_all_that_others_ask_it(module: Path) -> None:
    module.write_text(
        "from topologies.spec.transports.section import TransportSection\n"
        "class PART(TransportSection):\n    kind: str = 'new'\n"
    )
    with pytest.raises(IncompleteRegistration, match="without tcp, words"):
        section_parts(["new"], "gw_room_{}", TransportSection)


def test_every_transport_is_in_every_room() -> None:
    for room in (
        TRANSPORT_SECTIONS,
        RANK_TRANSPORTS,
        EMULATED_TRANSPORTS,
        DECODED_TRANSPORTS,
        PREDICTED_TRANSPORTS,
    ):
        assert tuple(room) == TRANSPORTS


def test_every_workload_has_its_parts() -> None:
    assert tuple(WORKLOAD_SECTIONS) == tuple(WORKLOADS)
    for kind, section in WORKLOAD_SECTIONS.items():
        assert get_args(section.model_fields["kind"].annotation) == (kind,)
    assert set(named_parts("ranks", RankWork)) == set(WORKLOADS)
    assert set(named_parts("guest", GuestWork)) == set(WORKLOADS)
    assert {*named_parts("inputs", FunctionType)} == {"chakra", "partitioned_inference"}
    assert {part.key for part in named_parts("row", ResultRow).values()} == {
        "ingest",
        "kv_cache",
        "partition",
    }
    for kind in WORKLOADS:  # ranks do what is listed, what actions say, or what is in files
        known = (kind == "collectives", kind in named_parts("actions", FunctionType))
        assert sum(known) == (kind not in ("chakra", "command")), kind


def test_a_workload_without_actions_says_what_its_ranks_run() -> None:
    with pytest.raises(IncompleteRegistration, match="mine:New: found neither actions nor guest"):
        WorkloadParts(section="mine:New", ranks="mine:RANKS")
    with pytest.raises(IncompleteRegistration, match="gw_nowhere: found no such module"):
        named({"new": "gw_nowhere:PART"}, GuestWork)
    with pytest.raises(IncompleteRegistration, match="found no ABSENT; expected one, a RankWork"):
        named({"new": "workloads.execution.rank_work:ABSENT"}, RankWork)


def test_every_discipline_is_in_every_room() -> None:
    assert tuple(BY_KIND) == DISCIPLINES
    with pytest.raises(IncompleteRegistration, match=r"ports: found no part of priced, free"):
        complete([*DISCIPLINES, "priced", "free"], dict(BY_KIND), "ports")

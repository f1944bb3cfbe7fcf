"""Ranks of a run make a schedule once, and each has its own part of it."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

import pytest

from collectives import shared_schedules
from collectives.algorithms.base import DoesNotFit
from collectives.kinds import Kind, Shape
from collectives.schedule.gloo import GLOO
from collectives.schedule.program import ProgramSchedule
from collectives.settings import Request, plan, schedule_of, settings_of
from collectives.shared_schedules import DIRECTORY_VARIABLE, SharedSchedules, planner_of_process
from topologies.spec.collectives_section import CollectivesOfRun
from topologies.spec.spec import parse_spec

_RANKS = 8


def _section(collectives: str) -> CollectivesOfRun:
    return settings_of(
        parse_spec(
            f"""
name: test
fabric: {{kind: rails, server: dgx-h100, servers: 2, hosts_per_server: 4, spines: 1}}
workload: {{kind: collectives, ranks: {_RANKS}, operations: [{{kind: all_reduce, size: 1MB}}]}}
collectives: {collectives}
"""
        )
    )


_RING = "{backend: programs, all_reduce: {algorithm: ring, chunks: 3}}"
_NCCL = "{backend: nccl, gpu: h100}"


@pytest.mark.parametrize("collectives", [_RING, _NCCL])
@pytest.mark.parametrize("kind", [Kind.ALL_REDUCE, Kind.ALL_GATHER])
def test_a_participant_has_its_own_steps_and_all_numbers(
    tmp_path: Path, collectives: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Request] = []

    def plan_and_tell(request: Request) -> ProgramSchedule:
        made.append(request)
        return plan(request)

    monkeypatch.setattr(shared_schedules, "plan", plan_and_tell)
    section, shape = _section(collectives), Shape(kind, 96_000, _RANKS, 4)
    whole = schedule_of(section, shape, None, range(_RANKS))
    if not isinstance(whole, ProgramSchedule):
        assert SharedSchedules(tmp_path, 0).schedule_of(section, shape, None, range(_RANKS)) == GLOO
        return
    for rank in range(_RANKS):
        ours = SharedSchedules(tmp_path, rank)
        seen = ours.schedule_of(section, shape, None, range(_RANKS))
        assert seen is ours.schedule_of(section, shape, None, range(_RANKS))
        assert isinstance(seen, ProgramSchedule)
        assert (seen.slots, seen.algorithm) == (whole.slots, whole.algorithm)
        for own, other in zip(seen.chunks, whole.chunks, strict=True):
            steps = own.program.participants
            assert steps[rank] == other.program.participants[rank]
            assert not any(steps[:rank]) and not any(steps[rank + 1 :])
            assert own.program.message_count == other.program.message_count
    assert len(made) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_collective_that_does_not_fit_is_refused_to_each(tmp_path: Path) -> None:
    section = _section("{backend: programs, all_reduce: {algorithm: halving-doubling}}")
    shape, members = Shape(Kind.ALL_REDUCE, 60, 3, 4), (0, 1, 2)
    for rank in members:
        with pytest.raises(DoesNotFit):
            SharedSchedules(tmp_path, rank).schedule_of(section, shape, None, members)
    assert not list(tmp_path.iterdir())


def _read(place: tuple[Path, int]) -> Sequence[object]:
    directory, rank = place
    shape = Shape(Kind.ALL_REDUCE, 96_000, _RANKS, 4)
    found = SharedSchedules(directory, rank).schedule_of(_section(_RING), shape)
    assert isinstance(found, ProgramSchedule)
    return found.chunks[0].program.participants[rank]


def test_ranks_that_come_at_once_have_one_schedule(tmp_path: Path) -> None:
    with get_context("fork").Pool(_RANKS) as pool:
        found = pool.map(_read, [(tmp_path, rank) for rank in range(_RANKS)], chunksize=1)
    whole = schedule_of(_section(_RING), Shape(Kind.ALL_REDUCE, 96_000, _RANKS, 4))
    assert isinstance(whole, ProgramSchedule)
    assert tuple(found) == whole.chunks[0].program.participants
    assert len(list(tmp_path.iterdir())) == 1


def test_a_process_without_a_run_plans_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    assert planner_of_process(0) is schedule_of
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    planner_of_process(0)(_section(_RING), Shape(Kind.ALL_REDUCE, 96_000, _RANKS, 4), None, None)
    assert list(tmp_path.iterdir())

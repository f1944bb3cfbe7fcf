"""The agreement of members when a node is lost: without a network, each a thread."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from collectives.kinds import Kind
from workloads.execution.aggregation.place import TreePlace, rescue_pipe
from workloads.execution.aggregation.rescue import Rescue
from workloads.execution.programs.engine import ProgramWork

_MEMBERS = 3


class _Hosts:
    """A stand-in for hosts: it notes what it was asked for, and is complete at once."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.asked: list[tuple[str, float]] = []
        self.noted = 0

    def again(self, data: torch.Tensor) -> ProgramWork:
        return self._done("again", data)

    def spread(self, root: int, data: torch.Tensor) -> ProgramWork:
        return self._done(f"from {root}", data)

    def fell_back(self) -> None:
        self.noted += 1

    def _done(self, what: str, data: torch.Tensor) -> ProgramWork:
        self.asked.append((what, float(data[0])))
        data.fill_(100.0)
        work = ProgramWork(1)
        work.chunk_done()
        return work


def _rescues(directory: Path) -> list[Rescue]:
    for member in range(_MEMBERS):
        os.mkfifo(rescue_pipe(directory, member))
    parents = (_MEMBERS,) * _MEMBERS + (-1,)
    places = [
        TreePlace(member, parents, "lo", directory, losable=True) for member in range(_MEMBERS)
    ]
    return [Rescue(place, _MEMBERS) for place in places]


def test_a_result_that_one_has_is_sent_to_all_and_the_rest_is_done_again(tmp_path: Path) -> None:
    rescues = _rescues(tmp_path)
    on_trees: dict[tuple[int, int], tuple[ProgramWork, torch.Tensor]] = {}
    hosts, data, works = {}, {}, {}
    for member, rescue in enumerate(rescues):
        for number in range(2):
            key = member, number

            def start(private: torch.Tensor, key: tuple[int, int] = key) -> ProgramWork:
                on_trees[key] = ProgramWork(1), private
                return on_trees[key][0]

            assert rescue.admit() == number
            hosts[key] = _Hosts(Kind.ALL_REDUCE)
            data[key] = torch.full((4,), float(member))
            works[key] = rescue.start(number, hosts[key], data[key], data[key], start)
    # The second member alone completes the first collective.
    done, private = on_trees[1, 0]
    private.fill_(3.0)
    done.chunk_done()
    assert data[1, 0].tolist() == [3.0] * 4
    on_trees[2, 1][0].failed(RuntimeError("connection closed"))
    for work in works.values():
        work.wait()
    for member in range(_MEMBERS):
        # Its inputs are as they were, whatever trees made of them.
        sent = 3.0 if member == 1 else float(member)
        assert hosts[member, 0].asked == [("from 1", sent)]
        assert hosts[member, 1].asked == [("again", float(member))]
        assert hosts[member, 0].noted == hosts[member, 1].noted == 1
        # A member that had its result keeps it.
        assert data[member, 0].tolist() == [3.0 if member == 1 else 100.0] * 4
        assert data[member, 1].tolist() == [100.0] * 4
    # Collectives that come later are the hosts' from the beginning.
    assert [rescue.admit() for rescue in rescues] == [None] * _MEMBERS

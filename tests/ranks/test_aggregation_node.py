"""Aggregation nodes are watched as ranks are: one that dies takes the run down, with its name."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from collectives.in_network.of_run import nodes_of
from collectives.settings import settings_of
from emulator.ranks.aggregation.process import AggregationJob
from emulator.ranks.launcher import Launcher, RankFailed
from emulator.ranks.rank_process import RankJob
from emulator.ranks.server import JobProcesses
from tests.collectives.test_aggregation import spec_of
from tests.slowdown import slowdown
from workloads.execution.aggregation.node_plan import NodePlan
from workloads.execution.aggregation.place import TreePlace, rescue_pipe
from workloads.execution.rank_plan import RankPlan

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: ranks enter network and mount namespaces"
)

_RANKS = 3


def _jobs(directory: Path, iterations: int, when_lost: str = "fail") -> list[JobProcesses]:
    """Ranks and a switch, all on this machine."""
    aggregation = {"when_lost": when_lost}
    spec = spec_of({"kind": "flat", "hosts": _RANKS}, _RANKS, aggregation)
    pipes = tuple(rescue_pipe(directory, rank) for rank in range(_RANKS))
    losable = when_lost == "fall-back"
    for pipe in pipes:
        os.mkfifo(pipe)
    settings = settings_of(spec)
    assert settings.aggregation is not None
    (tree,) = settings.aggregation.trees
    os.mkfifo(directory / f"requests.{_RANKS}")
    here, names = Path("/proc/self/ns/net"), Path("/etc/hosts")
    places = [
        TreePlace(i, tree.parents, "lo", directory, losable=losable) for i in range(_RANKS + 1)
    ]
    ranks = [
        RankJob(
            RankPlan(
                rank=rank,
                hosts=("here",) * _RANKS,
                addresses=("127.0.0.1",) * _RANKS,
                interface="lo",
                store_port=29573,
                workload=spec.workload.model_copy(update={"iterations": iterations}),
                compute=spec.compute,
                seed=1,
                events=directory / f"{rank:03d}.jsonl",
                collectives=settings,
                trees={tree.members: (places[rank],)},
            ),
            netns=here,
            names=names,
            stderr=directory / f"{rank:03d}.log",
        )
        for rank in range(_RANKS)
    ]
    (node,) = nodes_of(settings)
    switch = AggregationJob(
        NodePlan(
            node, ((tree.members, places[_RANKS]),), directory, directory / "s0.slots", settings
        ),
        here,
        names,
        directory / "s0.log",
        tells=pipes if losable else (),
    )
    return [JobProcesses("", (*ranks, switch))]


def test_ranks_and_switch_end_together(tmp_path: Path) -> None:
    begun: list[int] = []
    with Launcher() as launcher:
        launcher.run(_jobs(tmp_path, iterations=3), lambda _, i: begun.append(i))
    assert begun == [0, 1, 2]
    # Each rank's log: it has checked its sums.
    checks = [
        (tmp_path / f"{rank:03d}.jsonl").read_text().count('"check"') for rank in range(_RANKS)
    ]
    assert checks == [3, 3, 3]
    assert (tmp_path / "s0.log").read_text() == ""


def test_a_killed_node_takes_the_run_down_within_five_seconds(tmp_path: Path) -> None:
    pids: dict[int, int] = {}
    killed_at = 0.0

    def kill(job: str, iteration: int) -> None:
        nonlocal killed_at
        if iteration == 1:
            pids.update({each.process.rank: pid for pid, each in launcher.running.items()})
            killed_at = time.monotonic()
            os.kill(pids[_RANKS], signal.SIGKILL)

    said = "the aggregation node of switch s0 was killed by SIGKILL"
    with Launcher() as launcher, pytest.raises(RankFailed, match=said):
        launcher.run(_jobs(tmp_path, iterations=100_000), kill)
    assert time.monotonic() - killed_at < 5 * slowdown()
    assert all(not Path(f"/proc/{pid}").exists() for pid in pids.values())


def test_ranks_go_on_without_a_killed_node_where_the_spec_says_so(tmp_path: Path) -> None:
    def kill(job: str, iteration: int) -> None:
        if iteration == 1:
            launcher.kill_node("s0")

    with Launcher() as launcher:
        launcher.run(_jobs(tmp_path, 4, "fall-back"), kill)
        assert [node["switch"] for node in launcher.lost_nodes] == ["s0"]
    logs = [(tmp_path / f"{rank:03d}.jsonl").read_text() for rank in range(_RANKS)]
    # All ranks have checked all of their sums, and the last ones are the hosts'.
    assert [log.count('"check"') for log in logs] == [4] * _RANKS
    for log in logs:
        rows = [json.loads(line) for line in log.splitlines() if '"i3.all_reduce' in line]
        found = [row for row in rows if row["event"] == "collective"]
        assert [(row["algorithm"], row["fell_back"]) for row in found] == [("ring", True)]

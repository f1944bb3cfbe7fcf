"""`groundwire search`: what a seed varies; failures that are found, made smaller and run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from groundwire.search.search import Failure, Found, Search, signature_of
from groundwire.search.variations import HARMLESS, VARIED, Within, variation
from tests.session.command import ROOT
from topologies.spec.run_sections import Freeze
from topologies.spec.spec import Spec, parse_spec

_WITHIN = Within(10**9)
_SPEC = """
name: four
fabric: {kind: flat, hosts: 4, link: {rate: 25Gbps, delay: 1us, mtu: 9000}}
workload: {kind: command, argv: [python3], ranks: 4}
"""
_RACE = """
import os, socket, time
rank = int(os.environ["RANK"])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if rank:
    time.sleep(0.01)
    sock.sendto(b"%d" % rank, (os.environ["MASTER_ADDR"], 9))
else:
    sock.bind(("", 9))
    came = [sock.recv(9).decode() for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
    if came != sorted(came):
        raise RuntimeError(f"out of order: {came}")
"""

_LOST = """
import os, threading
total = 0
def add():
    global total
    for _ in range(3):
        value = total
        os.stat("/")
        total = value + 1
threads = [threading.Thread(target=add) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if total != 6:
    raise RuntimeError("lost an addition")
"""
_STALE = """
import os, socket, time
rank = int(os.environ["RANK"])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if rank:
    time.sleep(0.1)
    sock.sendto(str(time.time()).encode(), (os.environ["MASTER_ADDR"], 9))
else:
    sock.bind(("", 9))
    for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
        heartbeat = float(sock.recv(99))
        if time.time() - heartbeat > 0.5:
            raise RuntimeError("a rank is taken for dead")
"""

_SAVED = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
saved = False
try:
    for step in range(6):
        dist.all_reduce(torch.ones(1))
        if step == 2:
            saved = True  # from here on a rank may die
except RuntimeError:
    if not saved:
        raise RuntimeError("nothing is saved") from None
"""


@given(st.integers(min_value=1, max_value=2**31), st.sets(st.sampled_from(sorted(VARIED))))
def test_a_seed_is_one_spec_and_a_kind_more_leaves_the_others(seed: int, kinds: set[str]) -> None:
    spec = parse_spec(_SPEC)
    varied = sorted(kinds)
    found = variation(spec, seed, varied, _WITHIN)
    assert found == variation(spec, seed, varied, _WITHIN)
    assert parse_spec(found.to_yaml()) == found
    assert (found.seed, found.virtual.order) == (seed, seed if "order" in kinds else 0)
    assert found.virtual.thread_order == (seed if "threads" in kinds else 0)
    one_more = variation(spec, seed, [*varied, "loss"], _WITHIN)
    assert one_more.faults[: len(found.faults)] == found.faults


def test_seeds_differ() -> None:
    spec = parse_spec(_SPEC)
    assert len({variation(spec, seed, HARMLESS, _WITHIN).faults for seed in range(1, 50)}) == 49


def test_failures_that_say_the_same_are_one_kind() -> None:
    first, second = (
        f"rank {r} on h{r} exited with status 1; its last words:\nTraceback\n"
        f"[rank{r}]: RuntimeError: [/a/b/pair.cc:553] closed by peer [10.0.0.{r}]:3601{r}"
        for r in (3, 4)
    )
    assert signature_of(first) == signature_of(second)
    hangs = (
        f"the run hangs: rank {r} has waited\nrank {r} waits in all_reduce of {r} B for rank 2"
        for r in (0, 1)
    )
    assert {signature_of(said) for said in hangs} == {"hang in all_reduce"}
    assert signature_of(first) != signature_of("RuntimeError: something else")


def test_a_failure_is_made_smaller_in_each_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run fails, by its own words, where rank 1 sets out 100 ms late or more."""
    runs: list[Spec] = []

    def runs_here(spec: Spec, **given: object) -> None:
        runs.append(spec)
        for fault in spec.faults:
            if isinstance(fault, Freeze) and fault.rank == 1 and fault.duration_ns >= 10**8:
                raise RuntimeError(f"RuntimeError: rank 1 is {fault.duration_ns} ns late")

    monkeypatch.setattr("groundwire.search.search.run", runs_here)
    spec = parse_spec(_SPEC)
    kinds = ["starts", "latency", "order", "threads", "clock"]
    late = (variation(spec, seed, kinds, _WITHIN) for seed in range(1, 99))
    first = next(s for s in late if isinstance(f := s.faults[1], Freeze) and f.duration_ns > 4e8)
    found = Found(Failure(first.seed, first, "RuntimeError: rank 1 is 7 ns late"))
    with Search(spec, kinds, _WITHIN, tmp_path) as search:
        search.reduce(found)
    assert found.smallest is not None
    (fault,) = found.smallest.faults
    assert isinstance(fault, Freeze)
    assert fault.rank == 1 and 10**8 <= fault.duration_ns < 2 * 10**8
    assert (found.smallest.ranks, found.smallest.seed) == (2, first.seed)
    assert (found.smallest.virtual.order, found.smallest.virtual.thread_order) == (0, 0)
    assert found.said == f"RuntimeError: rank 1 is {fault.duration_ns} ns late"
    assert found.tries == len(runs) < 60


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "vary", "words", "faults"),
    [
        (_RACE, "order,latency,loss", "RuntimeError: out of order", []),
        (_LOST, "threads,order", "RuntimeError: lost an addition", []),
        (_STALE, "clock,order", "RuntimeError: a rank is taken for dead", ["clock"]),
        (_SAVED, "kill-step", "RuntimeError: nothing is saved", ["kill"]),
    ],
    ids=["ranks", "threads", "clocks", "steps"],
)
def test_a_seed_that_fails_is_found_and_fails_again(
    tmp_path: Path, program: str, vary: str, words: str, faults: list[str]
) -> None:
    (tmp_path / "fabric.yaml").write_text(_SPEC.split("workload")[0])
    (tmp_path / "program.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def groundwire(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "groundwire.cli", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    done = groundwire(
        "search", "fabric.yaml", "--seeds", "6", "--vary", vary, "--out", "found", "--json",
        "--operations", "6", "--",
        *([sys.executable] if program is _SAVED else ["python3", "-S"]), "program.py",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    (failure,) = json.loads(done.stdout)["failures"]
    assert failure["signature"].startswith(words)
    assert 0 < len(failure["seeds"]) < 6
    assert [fault["kind"] for fault in failure["faults"]] == faults
    virtual = yaml.safe_load((tmp_path / failure["spec"]).read_text())["virtual"]
    orders = virtual["order"] != 0, virtual["thread_order"] != 0
    assert orders == (program is _RACE, program is _LOST)  # no order more than it takes
    said = []
    for out in ("again-1", "again-2"):
        again = groundwire("run", failure["spec"], "--out", out)
        assert again.returncode == 1
        files = sorted((tmp_path / out / "ranks").glob("*.err"))
        said.append("".join(file.read_text().replace(out, "run") for file in files))
    assert "RuntimeError" in said[0]
    assert said[0] == said[1]

"""`groundwire search`: what a seed varies; failures that are found, made smaller and run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.search.search import signature_of
from groundwire.search.variations import HARMLESS, VARIED, variation
from tests.session.command import ROOT
from topologies.spec.spec import parse_spec

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


@given(st.integers(min_value=1, max_value=2**31), st.sets(st.sampled_from(sorted(VARIED))))
def test_a_seed_is_one_spec_and_a_kind_more_leaves_the_others(seed: int, kinds: set[str]) -> None:
    spec = parse_spec(_SPEC)
    varied = sorted(kinds)
    found = variation(spec, seed, varied, 10**9)
    assert found == variation(spec, seed, varied, 10**9)
    assert parse_spec(found.to_yaml()) == found
    assert (found.seed, found.virtual.order) == (seed, seed if "order" in kinds else 0)
    one_more = variation(spec, seed, [*varied, "loss"], 10**9)
    assert one_more.faults[: len(found.faults)] == found.faults


def test_seeds_differ() -> None:
    spec = parse_spec(_SPEC)
    assert len({variation(spec, seed, HARMLESS, 10**9).faults for seed in range(1, 50)}) == 49


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


@pytest.mark.long
def test_an_order_that_fails_is_found_and_fails_again(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(_SPEC.split("workload")[0])
    (tmp_path / "race.py").write_text(_RACE)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def groundwire(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "groundwire.cli", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    done = groundwire(
        "search", "fabric.yaml", "--seeds", "6", "--vary", "order,latency,loss", "--out", "found",
        "--json", "--", "python3", "-S", "race.py",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    (failure,) = json.loads(done.stdout)["failures"]
    assert failure["signature"].startswith("RuntimeError: out of order")
    assert 0 < len(failure["seeds"]) < 6
    assert failure["faults"] == []
    words = []
    for out in ("one", "two"):
        again = groundwire("run", failure["spec"], "--out", out)
        assert again.returncode == 1
        words.append((tmp_path / out / "ranks" / "000.err").read_text().replace(out, "run"))
    assert "out of order" in words[0]
    assert words[0] == words[1]

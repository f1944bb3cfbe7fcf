"""Clocks of hosts that are wrong, as programs see them, and orders of threads that are drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groundwire.pipeline import run
from tests.exec.programs import FABRIC, execute
from topologies.spec.run_sections import WrongClock
from topologies.spec.spec import SpecError, parse_spec

_STAR = "name: spec\nfabric: {kind: flat, hosts: 2, link: {rate: 1Gbps, delay: 1us, mtu: 1500}}\n"
_TWO = "workload: {kind: command, argv: [python3], ranks: 2}\n"
_FAULTS = """faults:
  - {kind: clock, host: h1, at: 0ns, offset: -1.5s, drift_ppm: 100}
  - {kind: clock, host: h2, at: 2s, offset: 250ms, duration: 2s}
"""
_ASKS = """
import os, time
begin, first = time.monotonic_ns(), time.time_ns()
print(first)
for step in range(1, 6):
    time.sleep((begin + step * 10**9 - time.monotonic_ns()) / 1e9)
    print(time.monotonic_ns() - begin, time.time_ns() - first)
"""


def _result(directory: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((directory / "run" / "result.json").read_text())
    return result


def test_a_program_is_told_a_time_that_is_wrong(tmp_path: Path) -> None:
    """Programs begin a microsecond apart. A sleep ends 1 or 2 ns late, by both clocks."""
    (tmp_path / "fabric.yaml").write_text(FABRIC + _FAULTS)
    (tmp_path / "asks.py").write_text(_ASKS)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--set",
        "capture.points=[]", "--", "python3", "-S", "asks.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [
        [int(word) for word in (tmp_path / f"run/ranks/{rank:03d}.out").read_text().split()]
        for rank in range(3)
    ]
    firsts = [words[0] for words in said]
    took = [
        [told - passed for passed, told in zip(words[1::2], words[2::2], strict=True)]
        for words in said
    ]
    assert took[0] == [0] * 5
    assert firsts[1] - firsts[0] == -1_500_000_000 + 1_000
    assert took[1] == [100_000 * step for step in range(1, 6)]
    assert took[2] == [0, 250_000_000, 250_000_000, 0, 0]
    (note,) = (n for n in _result(tmp_path)["notes"] if "time of day" in n)
    assert "h1 (-1.5s, +100 ppm), h2 (+250ms)" in note
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["missed_faults"] == []
    words = [(event["what"], event["began"]) for event in environment["faults"]]
    assert words == [
        ("clock of h1 -1.5s, +100 ppm", True),
        ("clock of h2 +250ms", True),
        ("clock of h2 +250ms", False),
    ]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("{kind: clock, host: h1, at: 0s}", "expected an `offset` or a `drift_ppm`"),
        ("{kind: clock, host: s0, at: 0s, offset: 1s}", "expected a host of the fabric"),
        ("{kind: clock, host: h1, at: 0s, offset: 1}", "faults[0].offset"),
        ("{kind: clock, host: h1, at: 0s, drift_ppm: 200000}", "faults[0].drift_ppm"),
    ],
)
def test_clocks_that_cannot_be_are_refused(fault: str, words: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec(f"{_STAR}{_TWO}faults: [{fault}]\n")
    assert words in str(refused.value)


def test_a_clock_is_written_as_it_is_read() -> None:
    text = f"{_STAR}{_TWO}faults: [{{kind: clock, host: h1, at: 1ms, offset: -1.5ms}}]\n"
    spec = parse_spec(text)
    (fault,) = spec.faults
    assert isinstance(fault, WrongClock)
    assert (fault.offset_ns, fault.in_words) == (-1_500_000, "-1.5ms")
    assert parse_spec(spec.to_yaml()) == spec


def test_ranks_of_our_own_ask_for_no_time_of_day() -> None:
    own = "workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1KB}]}\n"
    with pytest.raises(SpecError, match="only programs ask for the time"):
        parse_spec(f"{_STAR}{own}faults: [{{kind: clock, host: h1, at: 1ms, offset: 1s}}]\n")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("faults: [{kind: clock, host: h1, at: 0s, offset: 1s}]", "faults of kind clock"),
        ("virtual: {thread_order: 1}", "virtual.thread_order"),
    ],
)
def test_the_native_kernel_refuses_by_name(tmp_path: Path, section: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        run(parse_spec(f"{_STAR}{_TWO}{section}\n"), kernel="native", out=tmp_path / "run")


def test_who_asks_for_no_time_of_day_runs_the_same(tmp_path: Path) -> None:
    """Captures too, whose packets have the times of the clock that is right."""
    (tmp_path / "sends.py").write_text(
        "import os, socket, time\nsock = socket.socket(type=socket.SOCK_DGRAM)\n"
        "for step in range(20):\n    sock.sendto(b'x' * 900, (os.environ['MASTER_ADDR'], 9))\n"
        "    time.sleep(0.01)\n"
    )
    found = []
    for name, faults in (("right", ""), ("wrong", _FAULTS.replace("at: 2s", "at: 100ms"))):
        (tmp_path / f"{name}.yaml").write_text(FABRIC + faults)
        done = execute(
            tmp_path, f"{name}.yaml", "--kernel", "virtual", "--out", name, "--",
            "python3", "-S", "sends.py",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        files = sorted((tmp_path / name / "capture").iterdir())
        found.append({file.name: file.read_bytes() for file in files})
    assert len(found[0]) >= 3
    assert found[0] == found[1]


_TRAIN = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("world", dist.get_world_size(), "sum", total.item(), flush=True)
for step in range(10):
    time.sleep(1)
    dist.all_reduce(torch.ones(8))
print("done", flush=True)
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("behind_s", "world"), [(10, 2), (16, 1)])
def test_torchrun_takes_a_host_for_dead_whose_clock_is_behind(
    tmp_path: Path, behind_s: int, world: int
) -> None:
    """c10d's rendezvous judges heartbeats of others by its own time of day, three of 5 s. Rank 0
    then trains alone, to the end, though `--nnodes` asks for two, and nothing says so
    (benchmarks/results/2026-11-27-clocks.md)."""
    fault = f"faults: [{{kind: clock, host: h1, at: 0s, offset: -{behind_s}s}}]\n"
    (tmp_path / "fabric.yaml").write_text(FABRIC.replace("hosts: 3", "hosts: 2") + fault)
    (tmp_path / "train.py").write_text(_TRAIN)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--ranks", "2", "--out", "run", "--set",
        "capture.points=[]", "--", "torchrun", "--nnodes", "2", "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "h0:29400", "train.py", timeout_s=1500,
    )  # fmt: skip
    assert (done.returncode == 0) == (world == 2), done.stderr
    said = (tmp_path / "run" / "ranks" / "000.out").read_text()
    assert said == f"world {world} sum {world:.1f}\ndone\n"

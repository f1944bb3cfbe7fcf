"""Programs of all hosts draw their own random numbers, whatever they draw them by."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.exec.programs import FABRIC, execute

_DRAW = """
import ctypes, json, os, random, time

begun = time.monotonic_ns()
c = ctypes.CDLL(None)
c.getauxval.restype = ctypes.c_ulong
drawn = {
    "clock": time.time_ns(), "microseconds": time.time_ns() // 1000, "begun": begun,
    "urandom": open("/dev/urandom", "rb").read(8).hex(), "getrandom": os.getrandom(8).hex(),
    "AT_RANDOM": ctypes.string_at(c.getauxval(25), 16).hex(), "hash": hash("groundwire"),
    "random": random.random(), "process": os.getpid(), "rank": os.environ.get("RANK"),
    "uuid": open("/proc/sys/kernel/random/uuid").read().strip(),
}
print(json.dumps(drawn), flush=True)
"""


def _draws(tmp_path: Path, name: str, *command: str) -> list[dict[str, Any]]:
    """The numbers that each process has drawn, in order of ranks where they have one."""
    done = execute(tmp_path, "flat.yaml", "--kernel", "virtual", "--out", name, *command)
    assert done.returncode == 0, done.stderr
    outputs = sorted((tmp_path / name / "ranks").glob("*.out"))
    lines = [line for path in outputs for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def _differ(draws: Sequence[dict[str, Any]], but: Sequence[str] = ()) -> None:
    for kind in draws[0].keys() - {"rank", *but}:
        assert len({one[kind] for one in draws}) == len(draws), kind


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    (tmp_path / "flat.yaml").write_text(FABRIC)
    (tmp_path / "draw.py").write_text(_DRAW)
    (tmp_path / "with_torch.py").write_text("import torch\n" + _DRAW)
    return tmp_path


def test_processes_begin_a_microsecond_apart_and_draw_by_the_seed(programs: Path) -> None:
    command = ("--no-observe", "--", "python", "-I", "draw.py")
    draws = _draws(programs, "first", *command)
    assert len(draws) == 3
    _differ(draws)
    begun = [one["begun"] for one in draws]
    assert begun == sorted(begun)
    assert _draws(programs, "again", *command) == draws
    others = _draws(programs, "other", "--set", "seed=2", *command)
    for kind in ("urandom", "getrandom", "AT_RANDOM", "hash", "random", "uuid"):
        assert not {one[kind] for one in others} & {one[kind] for one in draws}


@pytest.mark.long
def test_ranks_that_torchrun_has_forked_begin_apart(programs: Path) -> None:
    draws = _draws(
        programs, "run", "-n", "6", "--ranks-per-host", "2", "--", "torchrun", "with_torch.py"
    )
    assert sorted(one["rank"] for one in draws) == list("012345")
    # Forked from one process, they have its hash seed and what the kernel gave it.
    _differ(draws, ("hash", "AT_RANDOM"))

"""No exact time is below what is expected at least: random fabrics, sizes and MTUs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from analysis.predict.setting import setting_of
from analysis.results.expected import Expectation
from analysis.runs.collectives import alignments_of, collectives_of
from analysis.runs.run import load_run
from emulator.session import run_session
from topologies.spec.spec import Spec, parse_dict

_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
_UNIT_BYTES = 96
"""A part for each of 2, 3, 4, 6 or 8 ranks, in whole elements."""
_TOLERATED = 0.006
"""Acknowledgements are counted over a whole run, and one collective has fewer than another."""


def random_spec(seed: int) -> Spec:
    """Collectives of few frames and of many, from 1 KB on, on a star or a leaf-spine fabric."""
    rng = random.Random(seed)
    link: dict[str, Any] = {
        "rate": rng.choice(["10Mbps", "100Mbps", "1Gbps", "25Gbps"]),
        "delay": rng.choice([0, "5us", "200us"]),
        "mtu": rng.choice([1500, 4000, 9000]),
    }
    ranks = rng.choice([2, 3, 4, 6, 8])
    fabric: dict[str, Any] = {"kind": "flat", "hosts": ranks, "link": link}
    if ranks % 4 == 0 and rng.random() < 0.5:
        fabric = {
            "kind": "leaf-spine",
            "leaves": 2,
            "spines": 2,
            "hosts_per_leaf": ranks // 2,
            "link": link,
        }
    operations = [
        {"kind": rng.choice(_KINDS), "size": 96 * round(10 ** rng.uniform(1, 3.8))}
        for _ in range(5)
    ]
    workload = {
        "kind": "collectives",
        "ranks": ranks,
        "iterations": 2,
        "operations": operations,
    }
    return parse_dict(
        {
            "name": f"bounds-{seed}",
            "fabric": fabric,
            "workload": workload,
            "capture": {"points": []},
        }
    )


def random_programs(seed: int) -> Spec:
    """Programs over RoCE on the fabric of `random_spec`."""
    rng = random.Random(seed)
    raw = random_spec(seed).to_dict()
    raw["name"] = f"program-{raw['name']}"
    ranks = raw["workload"]["ranks"]
    algorithms = ["ring", "direct"] + ["halving-doubling"] * (ranks in (2, 4, 8))
    raw["workload"]["operations"] = [
        {
            "kind": "all_reduce",
            "size": 96 * round(10 ** rng.uniform(1, 3.8)),
            "program": {"algorithm": rng.choice(algorithms), "chunks": rng.choice([1, 3])},
        }
        for _ in range(4)
    ] + [{"kind": "all_to_all", "size": 96 * round(10 ** rng.uniform(1, 3.8))}]
    raw["collectives"] = {"backend": "programs", "all_to_all": {"algorithm": "direct"}}
    raw["transport"] = {"kind": "roce", "path_mtu": 1024, "qp_timeout": "4s"}
    return parse_dict(raw)


def shares_of(spec: Spec, directory: Path) -> list[tuple[str, float, float]]:
    """(collective, share, share) on the virtual kernel: how far the least and the most are above
    the exact time."""
    run_session(spec, "virtual", directory, lambda progress: None)
    run = load_run(directory)
    expected = Expectation(
        setting_of(run), collectives_of(run), run.port_counters, 1, alignments_of(run)
    ).of_all()
    return [
        (
            f"{each.collectives[0].id} of {each.collectives[0].size_bytes}",
            each.least_ns / each.measured_ns - 1,
            each.most_ns / each.measured_ns - 1,
        )
        for each in expected
    ]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 13))
def test_no_exact_time_is_below_the_least(seed: int, tmp_path: Path) -> None:
    found = shares_of(random_spec(seed), tmp_path / "out")
    assert len(found) >= 8
    assert [each for each in found if each[1] > _TOLERATED] == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 9))
def test_no_exact_time_of_a_program_over_roce_is_below_the_least(seed: int, tmp_path: Path) -> None:
    found = shares_of(random_programs(seed), tmp_path / "out")
    assert len(found) >= 8
    assert [each for each in found if each[1] > _TOLERATED] == []

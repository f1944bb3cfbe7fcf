"""torchrun, unchanged; and a program as a spec's workload, in a run and in a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groundwire.sweeping import sweep
from tests.exec.programs import FABRIC, execute

_PROGRAM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(65536))
variables = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
with open("rank-" + os.environ["RANK"], "w") as file:
    file.write(" ".join([os.uname().nodename, *(os.environ[name] for name in variables)]))
dist.destroy_process_group()
"""

_COLLECTIVES = """
import torch, torch.distributed as dist

dist.init_process_group("gloo")
data = torch.ones(16384)
for size in (256, 16384):
    dist.barrier()
    dist.all_reduce(data[:size])
    dist.barrier()
    dist.all_to_all_single(torch.empty(size), torch.ones(size))
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [[], ["--rdzv-backend", "c10d", "--rdzv-endpoint", "h0:29400"]],
    ids=["static", "c10d"],
)
def test_torchrun_starts_the_ranks_of_each_host(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC.replace("flow]", "flow, packet]"))
    (tmp_path / "train.py").write_text(_PROGRAM)
    done = execute(
        tmp_path, "fabric.yaml", "--ranks", "4", "--ranks-per-host", "2", "--kernel", "virtual",
        "--out", "run", "--", "torchrun", *options, "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    work = tmp_path / "run" / "work"
    found = sorted((work / f"rank-{rank}").read_text() for rank in range(4))
    assert found == ["h0 0 0 4 2 0", "h0 1 1 4 2 0", "h1 2 0 4 2 1", "h1 3 1 4 2 1"]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [(row["kind"], row["ranks"]) for row in result["collectives"]] == [("all_reduce", 4)]
    predicted = result["collectives"][0]["predicted"]
    assert abs(predicted["flow"]["error"]) < 0.08
    assert abs(predicted["packet"]["error"]) < 0.005
    assert "share a host" in predicted["alpha-beta"]["reason"]


def test_collectives_of_ranks_that_share_hosts_are_predicted(tmp_path: Path) -> None:
    """Between two hosts the wire decides; within one, messages take no time."""
    (tmp_path / "fabric.yaml").write_text(FABRIC.replace("flow]", "flow, packet]"))
    (tmp_path / "train.py").write_text(_COLLECTIVES)
    done = execute(
        tmp_path, "fabric.yaml", "--ranks", "4", "--ranks-per-host", "2", "--kernel", "virtual",
        "--out", "run", "--", "python", "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "run" / "result.json").read_text())["collectives"]
    assert {row["kind"] for row in rows} == {"all_reduce", "all_to_all", "barrier"}
    for row in rows:
        assert abs(row["predicted"]["flow"]["error"]) < 0.05, row
        off_ns = abs(row["predicted"]["packet"]["duration_ns"] - row["duration_ns"])
        connecting_ns = 3 * 90 * 8 / 100  # frames without data that may be ahead of the first one
        assert off_ns <= max(connecting_ns, 0.005 * row["duration_ns"]), row
        assert "share a host" in row["predicted"]["alpha-beta"]["reason"]


def test_a_program_in_a_spec_is_swept(tmp_path: Path) -> None:
    """Each value of the axis is in the program's environment."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "talk.sh").write_text(
        "echo rank $RANK of $WORLD_SIZE says $WORD > said-$RANK\n"
    )
    (tmp_path / "spec.yaml").write_text(
        "fabric: {kind: flat, hosts: 2, link: {rate: 10Gbps}}\n"
        "workload: {kind: command, argv: sh talk.sh, ranks: 2, directory: code,\n"
        "  env: {WORD: yes-1}}\n"
    )
    cases = list(
        sweep(
            tmp_path / "spec.yaml",
            {"workload.env.WORD": ["two"]},
            kernel="virtual",
            out=tmp_path / "swept",
        )
    )
    said = [(case.run.directory / "work" / "said-1").read_text() for case in cases]
    assert said == ["rank 1 of 2 says two\n"]
    assert all(case.run.result["valid"] for case in cases)

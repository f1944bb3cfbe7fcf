"""NCCL's programs by real ranks, in the virtual kernel: their numbers and their times."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from analysis.decode.run_capture import load_capture
from analysis.runs.run import load_run
from tests.session.command import groundwire

SIZE_BYTES = 1 << 18
SPEC = """
name: nccl
fabric: {kind: rails, server: dgx-h100, servers: 2, hosts_per_server: 2, spines: 1}
workload:
  kind: collectives
  ranks: 4
  operations:
    - {kind: all_reduce, size: 256KiB}
    - {kind: all_to_all, size: 64KiB}
    - {kind: all_gather, size: 64KiB}
    - {kind: reduce_scatter, size: 64KiB}
    - {kind: broadcast, size: 64KiB, root: 1}
    - {kind: reduce, size: 64KiB, root: 2}
collectives: {backend: nccl}
capture: {points: []}
predict: [packet]
"""

ONE = ("--set", "workload.operations=[{kind: all_reduce, size: 256KiB}]")


@pytest.mark.parametrize("transport", ["tcp", pytest.param("roce", marks=pytest.mark.long)])
def test_every_kind_has_the_right_numbers(tmp_path: Path, transport: str) -> None:
    spec, out = tmp_path / "nccl.yaml", tmp_path / "out"
    spec.write_text(SPEC)
    more = ("--set", f"transport.kind={transport}")
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out, *more)
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    # Every rank checks what it has received.
    assert result["valid"] is True
    assert result["payload_checked"] is True
    assert {one["algorithm"] for one in result["collectives"]} == {"nccl"}
    assert len(result["collectives"]) == 6
    for one in result["collectives"]:
        # A tree's leaf sends after a step of 0.6 us at least, and a NIC's way takes 4.4 us.
        assert one["duration_ns"] > 5_000


def test_ranks_read_the_tuners_file_wherever_it_is(tmp_path: Path) -> None:
    # A guest has a /tmp of its own.
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        spec, out = Path(place, "nccl.yaml"), tmp_path / "out"
        spec.write_text(SPEC.replace("nccl}", "nccl, tuner: rows.csv}"))
        Path(place, "rows.csv").write_text("allreduce,0,1048576,tree,simple,1,-1,-1\n")
        done = groundwire("run", spec, "--kernel", "virtual", "--out", out, *ONE)
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    assert result["valid"] is True
    (row,) = result["collectives"]
    # The prediction is made outside.
    assert abs(row["predicted"]["packet"]["error"]) < 0.05


BY_SWITCHES = """
name: nvls
fabric: {kind: rails, server: dgx-h100, servers: 1, hosts_per_server: 4}
workload:
  kind: collectives
  ranks: 4
  operations:
    - {kind: all_reduce, size: 1MiB}
    - {kind: all_gather, size: 256KiB}
    - {kind: reduce_scatter, size: 256KiB}
collectives: {backend: nccl, env: {NCCL_ALGO: "nvls,nvlstree"}}
predict: [packet]
"""
ONLY_SUMS = "workload.operations=[{kind: all_reduce, size: 1MiB}]"


@pytest.mark.parametrize(
    ("more", "rows"),
    [
        ((), 3),
        (("fabric.servers=2", "fabric.hosts_per_server=2", ONLY_SUMS), 1),
    ],
    ids=["one server", "two"],
)
def test_switches_reduce_and_multicast(tmp_path: Path, more: tuple[str, ...], rows: int) -> None:
    spec, out = tmp_path / "nvls.yaml", tmp_path / "out"
    spec.write_text(BY_SWITCHES)
    sets = [part for one in more for part in ("--set", one)]
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out, *sets)
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    assert result["valid"] is True
    assert result["payload_checked"] is True
    assert len(result["collectives"]) == rows
    for one in result["collectives"]:
        # NCCL's latency of NVLS is taken once.
        assert 25_000 < one["duration_ns"] < 80_000
        assert abs(one["predicted"]["packet"]["error"]) < 0.05


BY_THE_NETWORK = """
name: collnet
fabric: {kind: rails, server: dgx-h100, servers: 2, hosts_per_server: 2}
workload:
  kind: collectives
  ranks: 4
  operations:
    - {kind: all_reduce, size: 64KiB}
    - {kind: all_reduce, size: 2MiB}
aggregation: {switches: [rail]}
collectives: {backend: nccl, env: {NCCL_ALGO: ALGORITHM}}
predict: [packet]
"""


@pytest.mark.parametrize(
    ("algorithm", "launch_ns"), [("CollNetDirect", 7_400), ("CollNetChain", 0), ("NVLS", 25_000)]
)
def test_switches_of_the_network_add_up_for_servers(
    tmp_path: Path, algorithm: str, launch_ns: int
) -> None:
    spec, out = tmp_path / "collnet.yaml", tmp_path / "out"
    spec.write_text(BY_THE_NETWORK.replace("ALGORITHM", algorithm))
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out)
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    assert result["valid"] is True
    assert result["payload_checked"] is True
    for one in result["collectives"]:
        # A NIC's way of 2.2 us up and down, beside the launch.
        assert launch_ns + 4_400 < one["duration_ns"] < 70_000
        # Six channels share a pair's connection: threads of one ns go on in the run's order.
        assert one["predicted"]["packet"]["error"] == 0


FLAGS = """
name: flags
fabric: {kind: flat, hosts: 2, link: {rate: 100Gbps, delay: 1us}}
workload:
  kind: collectives
  ranks: 2
  operations:
    - {kind: all_reduce, size: 64KiB}
    - {kind: all_gather, size: 240KiB}
collectives:
  backend: nccl
  env: {NCCL_ALGO: Ring, NCCL_PROTO: "allreduce:LL;allgather:LL128"}
predict: [packet]
"""


def test_flags_are_on_the_wire(tmp_path: Path) -> None:
    """LL sends 8 bytes for 4 of data, LL128 128 for 120. A rank of two sends half of its data twice
    in an all-reduce, and its half of an all-gather's once."""
    spec, out = tmp_path / "flags.yaml", tmp_path / "out"
    spec.write_text(FLAGS)
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out)
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    assert result["valid"] is True
    assert result["payload_checked"] is True
    capture = load_capture(load_run(out))
    assert capture is not None
    found = capture.attribution
    assert found.unattributed_bytes == found.unlogged_bytes == 0
    sent = {
        row.collective.kind: row.data_bytes
        for row in found.by_collective()
        if row.collective and row.collective.schedule.chunks
    }
    assert sent["all_reduce"] == 2 * 2 * (64 << 10)
    # 122,880 bytes of a rank are 64 units of 1,920, in as many parts as there are channels.
    assert 2 * 64 * 2048 <= sent["all_gather"] <= 2 * 72 * 2048
    for row in result["collectives"]:
        assert abs(row["predicted"]["packet"]["error"]) < 0.01


JOBS = """
name: jobs
fabric: {kind: rails, server: dgx-h100, servers: 2, hosts_per_server: 2, spines: 1}
jobs:
  - name: within
    workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 256KiB}]}
    collectives: {backend: nccl, env: {NCCL_ALGO: Ring}}
  - name: across
    workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 256KiB}]}
    placement: {0: h0, 1: h2}
    collectives: {backend: nccl}
  - name: gloo
    workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 256KiB}]}
    placement: {0: h1, 1: h3}
capture: {points: []}
predict: [packet]
"""


def test_jobs_have_choices_of_their_own(tmp_path: Path) -> None:
    spec, out = tmp_path / "jobs.yaml", tmp_path / "out"
    spec.write_text(JOBS)
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out)
    assert done.returncode == 0, done.stderr
    rows = {}
    for name in ("within", "across", "gloo"):
        result = json.loads((out / "jobs" / name / "result.json").read_text())
        assert result["valid"] is True
        (rows[name],) = result["collectives"]
    assert rows["within"]["algorithm"] == rows["across"]["algorithm"] == "nccl"
    assert rows["gloo"].get("algorithm") is None
    # NVLink has 7 times the rate of a NIC, and delays of 0.1 us in place of 2.2.
    assert 3 * rows["within"]["duration_ns"] < rows["across"]["duration_ns"]

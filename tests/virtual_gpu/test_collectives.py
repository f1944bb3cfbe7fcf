"""Algorithms of virtual GPUs' collectives: the spec's programs, NCCL's, and the ring of a
reduce-scatter that has none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.decode.run_capture import load_capture
from analysis.runs.run import load_run
from collectives.carried import CarriedSection
from collectives.kinds import Kind, Shape
from collectives.schedule.gloo import GLOO
from tests.exec.programs import execute
from tests.session.command import result_of
from topologies.spec.spec import parse_spec

_RAILS = """
fabric:
  kind: rails
  servers: 2
  hosts_per_server: 2
  link: {rate: 100Gbps, delay: 1us, mtu: 9000}
  links: {scale-up: {rate: 2400Gbps, delay: 100ns, mtu: 9000}}
predict: [packet]
"""
_PROGRAMS = """
collectives:
  backend: programs
  all_reduce: {algorithm: halving-doubling}
  all_gather: {algorithm: ring, channels: 2}
  all_to_all: {algorithm: pairwise}
  broadcast: {algorithm: tree}
  reduce: {algorithm: double-binary-tree}
"""
_NCCL = "\ncollectives: {backend: nccl}\n"
_SCRIPT = """
import os, torch, torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
r, n = dist.get_rank(), dist.get_world_size()

def full(size, value, dtype=torch.float32):
    return torch.full((size,), float(value), device="cuda", dtype=dtype)

x = full(1000, r)
dist.all_reduce(x)
assert x.tolist() == [n * (n - 1) / 2] * 1000
x = full(8, r, torch.bfloat16)
dist.all_reduce(x, op=dist.ReduceOp.AVG)
assert x[0].item() == (n - 1) / 2
x = torch.tensor([r], device="cuda")
dist.all_reduce(x, op=dist.ReduceOp.MAX)
assert x.item() == n - 1
part = torch.empty(2, device="cuda")
dist.reduce_scatter_tensor(part, torch.arange(2.0 * n, device="cuda"))
assert part.tolist() == [2 * r * n, (2 * r + 1) * n]
dist.reduce_scatter(part, [full(2, r + each) for each in range(n)], op=dist.ReduceOp.AVG)
assert part.tolist() == [r + (n - 1) / 2] * 2
gathered = torch.empty(4 * n, device="cuda")
dist.all_gather_into_tensor(gathered, full(4, r))
assert gathered.tolist() == [rank for rank in range(n) for _ in range(4)]
lists = [torch.empty(3, device="cuda") for _ in range(n)]
dist.all_gather(lists, full(3, r))
assert [each[2].item() for each in lists] == list(range(n))
got = torch.empty(2 * n, dtype=torch.int64, device="cuda")
dist.all_to_all_single(got, torch.arange(2 * n, device="cuda") + 100 * r)
assert got[0::2].tolist() == [100 * rank + 2 * r for rank in range(n)]
told = full(3, r)
dist.broadcast(told, 1)
assert told[0].item() == 1
dist.reduce(told, 2)
assert r != 2 or told[0].item() == n
sent, counts = full(n * (n + 1) // 2, r, torch.int64), list(range(1, n + 1))
got = torch.empty((r + 1) * n, dtype=torch.int64, device="cuda")
dist.all_to_all_single(got, sent, [r + 1] * n, counts)
assert got.tolist() == [rank for rank in range(n) for _ in range(r + 1)]
large = torch.empty(500_000, device="cuda")
dist.reduce_scatter_tensor(large, full(500_000 * n, 1))
dist.all_gather_into_tensor(full(500_000 * n, 1), large)
dist.all_reduce(full(1_000_000, 1))
three = dist.new_group([0, 1, 3])
if r != 2:
    x = full(6, r)
    dist.all_reduce(x, group=three)
    assert x[0].item() == 4
dist.barrier()
dist.destroy_process_group()
"""


def _run(folder: Path, more: str, network: str, *options: str) -> dict[str, Any]:
    (folder / "rails.yaml").write_text(_RAILS + more)
    (folder / "script.py").write_text(_SCRIPT)
    gpus = ("--gpus-per-host", "2", "--device", "h100", "--network", network)
    words = (*gpus, *options, "--out", network, "--", "torchrun", "script.py")
    done = execute(folder, "rails.yaml", *words, timeout_s=800)
    assert done.returncode == 0, done.stderr[-3000:]
    result = result_of(folder / network)
    assert result["valid"]
    return result


def _rows(result: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [row for row in result["collectives"] if row["kind"] == kind]


def _algorithm(row: dict[str, Any]) -> str | None:
    """None for Gloo's own."""
    found: str | None = row.get("algorithm")
    return found


def _sent_bytes(directory: Path) -> int:
    """The bytes of all hosts' ports, by their counters."""
    lines = (directory / "links.jsonl").read_text().splitlines()
    return sum(json.loads(line)["bytes"] for line in lines)


def _first_posts_ns(directory: Path) -> list[int]:
    """When each rank posted its first collective."""
    ranks = load_run(directory).ranks
    return [min(record.start_ns for record in rank.collectives) for rank in ranks]


def test_a_reduce_scatter_goes_round_a_ring_with_its_own_bytes(tmp_path: Path) -> None:
    """Each rank sends three quarters of the size, and the captures have all of it in the row."""
    result = _run(tmp_path, "", "emulated", "--set", "capture.points=[hosts]")
    rows = _rows(result, "reduce_scatter")
    assert [_algorithm(row) for row in rows] == ["ring"] * 3
    large = rows[-1]
    assert large["size_bytes"] == 8_000_000
    capture = load_capture(load_run(tmp_path / "emulated"))
    assert capture is not None
    found = capture.attribution
    assert (found.unattributed_bytes, found.unlogged_bytes) == (0, 0)
    sent = {each.collective.id: each for each in found.by_collective() if each.collective}
    assert sent[large["id"]].data_bytes == 4 * 3 * large["size_bytes"] // 4
    # Three steps of a part each, over links of 100 Gb/s less their headers.
    assert large["duration_ns"] == pytest.approx(3 / 4 * 8_000_000 * 8 / 98.7, rel=0.01)
    error = large["predicted"]["packet"]["duration_ns"] / large["duration_ns"] - 1
    assert abs(error) < 0.005
    assert all(_algorithm(row) is None for row in _rows(result, "all_reduce"))
    assert any("reduce-scatters go round a ring" in note for note in result["notes"])


@pytest.mark.parametrize("network", ["emulated", "simulated"])
def test_collectives_run_by_the_spec_s_programs(tmp_path: Path, network: str) -> None:
    """A group of three, which halving and doubling does not fit, has Gloo's own."""
    result = _run(tmp_path, _PROGRAMS, network)
    algorithms = {
        kind: [_algorithm(row) for row in _rows(result, kind)]
        for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    }
    assert algorithms["all_reduce"] == ["halving-doubling"] * 4 + [None]
    assert algorithms["all_gather"] == ["ring"] * 3
    assert algorithms["reduce_scatter"] == ["ring"] * 3
    assert algorithms["all_to_all"] == ["pairwise", None]  # of unequal parts
    assert [_algorithm(row) for row in _rows(result, "broadcast")] == ["tree"]
    assert [_algorithm(row) for row in _rows(result, "reduce")] == ["double-binary-tree"]
    assert any(
        "the spec's algorithm does not fit all_reduce of 3 ranks" in note
        for note in result["notes"]
    )
    # The large all-reduce, too, whose windows hang on all that went before, unequal parts included.
    sent = _rows(result, "all_gather"), _rows(result, "reduce_scatter"), _rows(result, "all_to_all")
    for row in (*sent[0], *sent[1], *sent[2], _rows(result, "all_reduce")[3]):
        error = row["predicted"]["packet"]["duration_ns"] / row["duration_ns"] - 1
        assert abs(error) < 0.01, row


def test_collectives_run_by_nccl_s_choices(tmp_path: Path) -> None:
    result = _run(tmp_path, _NCCL, "simulated")
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"):
        assert {_algorithm(row) for row in _rows(result, kind)} == {"nccl"}, kind
    assert any("with NCCL's algorithms" in note for note in result["notes"])
    large = _rows(result, "all_gather")[-1]
    assert large["predicted"]["packet"]["duration_ns"] == pytest.approx(
        large["duration_ns"], rel=0.02
    )


@pytest.mark.long
@pytest.mark.parametrize("more", ["", _PROGRAMS, _NCCL])
def test_the_simulated_network_takes_what_the_emulated_takes(tmp_path: Path, more: str) -> None:
    found = _run(tmp_path, more, "simulated")
    expected = _run(tmp_path, more, "emulated")
    begun = [_first_posts_ns(tmp_path / network) for network in ("simulated", "emulated")]
    assert begun[0] == begun[1] and len(begun[0]) == 4
    times = {(row["group"], row["id"]): row for row in expected["collectives"]}
    for row in found["collectives"]:
        wanted = times[row["group"], row["id"]]
        assert _algorithm(row) == _algorithm(wanted)
        if _algorithm(row) == "halving-doubling" and row["size_bytes"] > 10**6:
            continue  # 96 ns in two ranks' posts decide at which window slow start ends
        assert row["duration_ns"] == pytest.approx(wanted["duration_ns"], rel=0.01, abs=4_000), row
    assert _sent_bytes(tmp_path / "simulated") == pytest.approx(
        _sent_bytes(tmp_path / "emulated"), rel=0.02
    )


def _section(collectives: str) -> CarriedSection:
    return CarriedSection.of_spec(
        parse_spec(
            "name: t\nworkload: {kind: command, argv: [python, t.py], ranks: 4, gpus_per_host: 2}\n"
            + _RAILS
            + collectives
        )
    )


@pytest.mark.parametrize(
    ("collectives", "shape", "algorithm", "fell_back"),
    [
        ("", Shape(Kind.REDUCE_SCATTER, 64, 4, 4), "ring", ""),
        ("", Shape(Kind.ALL_REDUCE, 64, 4, 4), None, ""),
        ("", Shape(Kind.REDUCE_SCATTER, 0, 4, 4), None, ""),
        (_PROGRAMS, Shape(Kind.ALL_REDUCE, 64, 4, 4), "halving-doubling", ""),
        (_PROGRAMS, Shape(Kind.ALL_REDUCE, 60, 3, 4), None, "all_reduce of 3 ranks"),
        (_PROGRAMS, Shape(Kind.GATHER, 60, 3, 4), None, ""),
        (
            "\ncollectives: {backend: programs, reduce_scatter: {algorithm: halving-doubling}}\n",
            Shape(Kind.REDUCE_SCATTER, 60, 3, 4),
            "ring",
            "reduce_scatter of 3 ranks",
        ),
        (_NCCL, Shape(Kind.ALL_GATHER, 1 << 20, 4, 4), "nccl", ""),
        (_NCCL, Shape(Kind.ALL_GATHER, 1 << 20, 2, 4), "nccl", ""),
    ],
)
def test_the_algorithm_of_a_group_s_collective(
    collectives: str, shape: Shape, algorithm: str | None, fell_back: str
) -> None:
    section = _section(collectives)
    members: Sequence[int] = (0, 3, 2, 1)[: shape.ranks]
    found = section.collective(shape, members)
    assert found.schedule.algorithm == algorithm
    assert found.fell_back.startswith(fell_back) and bool(found.fell_back) == bool(fell_back)
    assert ("program" in found.record) == (found.schedule != GLOO)
    again = CarriedSection.from_json(section.as_json())
    assert again.collective(shape, members).told == found.told


@pytest.mark.parametrize(
    ("collectives", "said"),
    [
        ("{backend: programs, order: lifo}", "collectives.order: found lifo; expected fifo with"),
        (
            "{backend: programs, all_reduce: {algorithm: aggregation}}",
            "collectives.all_reduce.algorithm: found aggregation; expected an algorithm of hosts",
        ),
        (
            "{backend: nccl, env: {NCCL_SOCKET_NTHREADS: 2, NCCL_NSOCKS_PERTHREAD: 2}}",
            "transport.connections: found 4; expected 1 with network: simulated",
        ),
    ],
)
def test_what_programs_of_virtual_gpus_lack_is_refused_by_name(
    tmp_path: Path, collectives: str, said: str
) -> None:
    (tmp_path / "rails.yaml").write_text(_RAILS + f"\ncollectives: {collectives}\n")
    options = ("--gpus-per-host", "2", "--network", "simulated")
    done = execute(tmp_path, "rails.yaml", *options, "--", "python", "-c", "pass")
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())

"""Scripts whose collectives go through the simulated network, beside the same over the emulated
one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testing.training_programs import PROGRAMS
from tests.exec.programs import execute
from tests.session.command import result_of

_RAILS = """
fabric:
  kind: rails
  servers: 2
  hosts_per_server: 2
  link: {rate: 100Gbps, delay: 1us, mtu: 9000}
  links: {scale-up: {rate: 2400Gbps, delay: 100ns, mtu: 9000}}
predict: [alpha-beta]
"""
_ALL_KINDS = """
import os, time, torch, torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
r, n = dist.get_rank(), dist.get_world_size()

def full(size, value, dtype=torch.float32):
    return torch.full((size,), value, device="cuda", dtype=dtype)

for size in (1_000, 100_000, 2_000_000):
    x = full(size, float(r))
    dist.all_reduce(x)
    if size == 1_000:
        assert x[0].item() == n * (n - 1) / 2
half = full(8, float(r), torch.bfloat16)
dist.all_reduce(half, op=dist.ReduceOp.AVG)
assert half[0].item() == (n - 1) / 2
flag = torch.tensor([r == 0], device="cuda")
dist.all_reduce(flag, op=dist.ReduceOp.MAX)
assert flag.item() is True
objects = [None] * n
dist.all_gather_object(objects, {"rank": r})
assert [each["rank"] for each in objects] == list(range(n))
gathered = torch.empty(4 * n, device="cuda")
dist.all_gather_into_tensor(gathered, full(4, float(r)))
assert gathered[-1].item() == n - 1
part = torch.empty(2, device="cuda")
dist.reduce_scatter_tensor(part, torch.arange(2.0 * n, device="cuda"))
assert part[0].item() == 2 * r * n
large = torch.empty(500_000, device="cuda")
dist.reduce_scatter_tensor(large, full(2_000_000, 1.0))
sent, counts = full(n * (n + 1) // 2, r, torch.int64), list(range(1, n + 1))
got = torch.empty((r + 1) * n, dtype=torch.int64, device="cuda")
dist.all_to_all_single(got, sent, [r + 1] * n, counts)
assert got.tolist() == [rank for rank in range(n) for _ in range(r + 1)]
told = full(3, float(r))
dist.broadcast(told, 1)
assert told[0].item() == 1
dist.reduce(told, 2)
assert r != 2 or told[0].item() == n
parts = [full(2, float(rank)) for rank in range(n)] if r == 0 else None
own = torch.empty(2, device="cuda")
dist.scatter(own, parts, 0)
assert own[0].item() == r
if r == 0:
    dist.send(full(5, 7.0), 3)
if r == 3:
    dist.recv(own.resize_(5), 0)
    assert own[2].item() == 7
dist.barrier()
began = time.monotonic()
if r == 3:
    time.sleep(0.01)
halves = [dist.new_group([0, 2]), dist.new_group([1, 3])]
assert time.monotonic() - began > 0.009  # nobody goes on before all have made them
y = full(300_000, 1.0)
dist.all_reduce(y, group=halves[r % 2])
dist.barrier()
dist.destroy_process_group()
print("all right")
"""


def _run(
    folder: Path, network: str, out: str, *options: str, script: str = "script.py"
) -> dict[str, Any]:
    gpus = ("--gpus-per-host", "2", "--device", "h100", "--network", network)
    done = execute(folder, "rails.yaml", *gpus, *options, "--out", out, "--", "torchrun", script)
    assert done.returncode == 0, done.stderr[-3000:]
    assert ("SIMULATED network" in done.stdout) == (network == "simulated")
    return result_of(folder / out)


def _rows(result: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(row["group"], row["id"]): row["duration_ns"] for row in result["collectives"]}


def test_collectives_of_all_kinds_have_their_results_and_times(tmp_path: Path) -> None:
    """The time of a large all-reduce is that of its bytes on the line."""
    (tmp_path / "rails.yaml").write_text(_RAILS)
    (tmp_path / "script.py").write_text(_ALL_KINDS)
    result = _run(tmp_path, "simulated", "run")
    assert result["valid"] and result["network"] == "simulated"
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["simulated"]["early_posts"] == 0
    links = [json.loads(line) for line in (tmp_path / "run/links.jsonl").read_text().splitlines()]
    sent = {row["id"]: row for row in result["collectives"]}["default.2.all_reduce"]
    each_bytes = 2 * 3 / 4 * sent["size_bytes"]
    assert sum(link["bytes"] for link in links) > 4 * each_bytes
    assert sent["duration_ns"] == pytest.approx(each_bytes * 8 / 98, rel=0.01)


@pytest.mark.long
def test_collectives_take_what_they_take_over_the_emulated_network(tmp_path: Path) -> None:
    """Small ones take some microseconds more or less by which rank of them comes last."""
    (tmp_path / "rails.yaml").write_text(_RAILS)
    (tmp_path / "script.py").write_text(_ALL_KINDS)
    simulated = _run(tmp_path, "simulated", "simulated")
    emulated = _run(tmp_path, "emulated", "emulated")
    assert "network" not in emulated
    found, expected = _rows(simulated), _rows(emulated)
    assert found.keys() == expected.keys()
    for key, duration_ns in expected.items():
        assert found[key] == pytest.approx(duration_ns, rel=0.01, abs=4_000), key
    links = [json.loads(x) for x in (tmp_path / "simulated/links.jsonl").read_text().splitlines()]
    carried = [json.loads(x) for x in (tmp_path / "emulated/links.jsonl").read_text().splitlines()]
    assert sum(link["bytes"] for link in links) == pytest.approx(
        sum(link["bytes"] for link in carried), rel=0.02
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "network: found simulated; expected emulated without gpus_per_host"),
        (("--gpus-per-host", "2", "--no-observe"), "observe: found false; expected true"),
        (("--gpus-per-host", "2", "--set", "capture.points=[hosts]"), "no packets to capture"),
        (("--gpus-per-host", "2", "--set", "transport.kind=roce"), "expected tcp with network"),
        (
            (
                "--gpus-per-host",
                "2",
                "--set",
                "faults=[{kind: link-down, link: h0-server0, at: 1ms}]",
            ),
            "the engine follows no faults from outside",
        ),
        (("--gpus-per-host", "2", "--set", "counters.interval=1ms"), "ports have totals alone"),
    ],
)
def test_what_it_does_not_do_is_refused_by_name(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    (tmp_path / "rails.yaml").write_text(_RAILS)
    words = (*options, "--network", "simulated", "--", "python", "script.py")
    (tmp_path / "script.py").write_text("import torch\n")
    done = execute(tmp_path, "rails.yaml", *words)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_ranks_that_post_what_does_not_fit_are_named(tmp_path: Path) -> None:
    (tmp_path / "rails.yaml").write_text(_RAILS)
    (tmp_path / "script.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n'
        'dist.init_process_group("nccl")\n'
        "many = 10 if dist.get_rank() else 20\n"
        'dist.all_reduce(torch.ones(many, device="cuda"))\n'
        "torch.cuda.synchronize()\n"
    )
    gpus = ("--gpus-per-host", "2", "--network", "simulated", "--out", "run")
    done = execute(tmp_path, "rails.yaml", *gpus, "--", "torchrun", "script.py")
    assert done.returncode == 1
    assert "posts all_reduce of 80 bytes" in done.stderr or "of 40 bytes" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(("name", "gpus"), [("torch-ddp", 2), ("torch-fsdp2", 4)])
def test_training_takes_what_it_takes_over_the_emulated_network(
    tmp_path: Path, name: str, gpus: int
) -> None:
    """Iterations within 1% behind the first, whose connections are new; and two runs the same."""
    program = PROGRAMS[name]
    (tmp_path / "servers.yaml").write_text(
        program.fabric().replace("hosts_per_server: 2", f"hosts_per_server: {gpus}")
    )

    def run(network: str, out: str) -> dict[str, Any]:
        options = ("--gpus-per-host", str(gpus), "--device", "h100", "--network", network)
        done = execute(
            tmp_path, "servers.yaml", *options, "--out", out, "--", *program.argv(), timeout_s=3000
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found = result_of(tmp_path / out)
        assert found["valid"]
        return found

    simulated, emulated = run("simulated", "simulated"), run("emulated", "emulated")
    for found, expected in zip(simulated["iterations"], emulated["iterations"], strict=True):
        if found["index"]:
            assert found["duration_ns"] == pytest.approx(expected["duration_ns"], rel=0.01)
    again = run("simulated", "again")
    assert again | {"wall_s": 0} == simulated | {"wall_s": 0}

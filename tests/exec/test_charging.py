"""A program is charged for its torch's computing: the roofline of the spec's device, exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from analysis.runs.collectives import collectives_of
from analysis.runs.run import load_run
from emulator.native.kernel import missing_for
from emulator.ranks.program_jobs import device_plan
from tests.exec.programs import FABRIC, execute
from tests.session.command import result_of
from topologies.spec.compute_section import ComputeSpec
from topologies.spec.spec import SpecError, parse_spec
from workloads.observer.charging import Charging

DEVICE = ComputeSpec.model_validate(
    {"device": "custom", "flops": "1TFLOPS", "memory_bandwidth": "100GB/s", "overhead": "100ns"}
)
PLAN: dict[str, Any] = {"device": device_plan(DEVICE), "times": None, "slowdown": 1}
_COMPUTE = """
compute: {device: custom, flops: 1TFLOPS, memory_bandwidth: 100GB/s, overhead: 100ns}
"""
_PROGRAM = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
a, b, g = torch.empty(256, 512), torch.empty(512, 128, requires_grad=True), torch.empty(256, 128)
c = a @ b
dist.barrier()
c.backward(g)
dist.barrier()
layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
model = DistributedDataParallel(layers, bucket_cap_mb=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(256, 512)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
_LINES = """
name: program
fabric: {{kind: flat, hosts: 4}}
workload: {{kind: command, argv: [a], ranks: 4, charge: true{workload}}}
compute: {{{compute}}}
"""


def charged(work: Callable[[], object], plan: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The compute events of what `work` does, in a time that only they move on."""
    now_ns = 0
    lines: list[dict[str, Any]] = []
    errors: list[Exception] = []

    def sleep(duration_ns: int) -> tuple[int, int]:
        nonlocal now_ns
        now_ns += duration_ns
        return now_ns - duration_ns, now_ns

    charging = Charging(plan or PLAN, sleep, lines.append, errors.append)
    charging.begin()
    try:
        work()
    finally:
        charging.end()
    assert not errors
    return lines


def _total(lines: list[dict[str, Any]], key: str) -> int:
    return sum(line[key] for line in lines)


def test_a_matmul_takes_the_rooflines_time_forward_and_backward() -> None:
    a, b = torch.empty(256, 512), torch.empty(512, 128, requires_grad=True)
    gradient = torch.empty(256, 128)
    lines = charged(lambda: (a @ b).backward(gradient))
    flops = 2 * 256 * 512 * 128
    sizes = [4 * 256 * 512, 4 * 512 * 128, 4 * 256 * 128]
    expected_ns = DEVICE.time_ns(flops, sum(sizes), 4)
    assert [(x["phase"], x["flops"], x["bytes"], x["operations"]) for x in lines] == [
        ("forward", flops, sum(sizes), 1),
        ("backward", flops, sum(sizes), 1),
    ]
    assert [x["end_ns"] - x["start_ns"] for x in lines] == [expected_ns, expected_ns]


def test_half_precision_has_its_own_peak() -> None:
    device = ComputeSpec(device="v100")
    plan = PLAN | {"device": device_plan(device)}
    assert plan["device"]["flops_16bit_per_s"] == 125e12
    assert plan["device"]["flops_32bit_per_s"] == 15.7e12
    lines: list[dict[str, Any]] = []
    errors: list[Exception] = []
    charging = Charging(plan, lambda ns: (0, ns), lines.append, errors.append)
    a = torch.zeros(512, 512, dtype=torch.bfloat16)
    charging.begin()
    a @ a
    charging.end()
    assert not errors
    assert lines[0]["end_ns"] == device.time_ns(2 * 512**3, 3 * 2 * 512**2, 2)


def test_kernels_reach_published_shares_by_class_and_size() -> None:
    device = ComputeSpec.model_validate({"device": "h100", "kernels": "published"})
    plan = PLAN | {"device": device_plan(device)}
    a = torch.zeros(256, 512, dtype=torch.bfloat16)
    (product,) = charged(lambda: a @ a.T, plan)
    flops, moved = 2 * 256 * 512 * 256, 2 * (2 * 256 * 512 + 256 * 256)
    assert product["end_ns"] == device.time_ns(flops, moved, 2)
    assert product["end_ns"] == round(flops / 989e12 / 0.082 * 1e9)
    q = torch.zeros(1, 1, 2048, 128, dtype=torch.bfloat16)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    (attention,) = charged(lambda: flash(q, q, q, is_causal=True), plan)
    # torch counts the whole square: 2 products of 2048 x 2048 x 128.
    assert attention["flops"] == 4 * 2048 * 2048 * 128
    assert attention["end_ns"] == round(attention["flops"] / 989e12 / 0.301 * 1e9)


def test_views_and_allocations_are_free_and_a_write_reads_nothing() -> None:
    a = torch.ones(64, 64)
    assert not charged(lambda: (torch.empty_like(a), a.t()[1].view(8, 8), a[3:5].detach()))
    assert charged(a.zero_)[0]["bytes"] == 4 * 64 * 64
    assert charged(lambda: a.add_(1))[0]["bytes"] == 2 * 4 * 64 * 64
    # One number that is shown 4,096 times is read once.
    assert charged(lambda: torch.ones(1).expand(4096).sum())[-1]["bytes"] == 4 + 4 + 4


def test_lookups_read_rows_and_not_the_table() -> None:
    """A step with sparse gradients, too, changes rows alone."""
    table, row_bytes = torch.nn.EmbeddingBag(10_000, 64, mode="sum", sparse=True), 4 * 64
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    indices, offsets = torch.arange(32), torch.arange(0, 32, 4)

    def work() -> None:
        table(indices, offsets).sum().backward()
        optimizer.step()

    assert 64 * row_bytes < _total(charged(work), "bytes") < 1_000 * row_bytes
    embedding = torch.nn.Embedding(10_000, 64)
    with torch.no_grad():
        line = charged(lambda: embedding(indices))[0]
    assert line["bytes"] == 2 * 32 * row_bytes + 8 * 32


def test_operations_of_others_are_seen_in_inference_mode_and_in_attention() -> None:
    linear = torch.nn.Linear(128, 256)
    x = torch.ones(16, 128)

    def infer() -> None:
        with torch.inference_mode():
            linear(x)

    assert _total(charged(infer), "flops") == 2 * 16 * 128 * 256
    q = torch.ones(2, 4, 16, 32, requires_grad=True)
    lines = charged(lambda: functional.scaled_dot_product_attention(q, q, q).sum().backward())
    products = 2 * (2 * 4) * 16 * 16 * 32
    assert sum(x["flops"] for x in lines if x["phase"] == "forward") == 2 * products
    assert sum(x["flops"] for x in lines if x["phase"] == "backward") == 5 * products


def test_shapes_that_are_tried_out_are_free() -> None:
    """As DTensor does, before an operation."""

    def work() -> None:
        with FakeTensorMode():
            linear = torch.nn.Linear(16, 16)
            linear(torch.ones(4, 16)).sum().backward()
        torch.ones(4, device="meta").exp()

    assert not charged(work)


def test_a_number_that_is_read_is_waited_for() -> None:
    a = torch.ones(64)
    assert [x["operations"] for x in charged(lambda: (a.sum().item(), a.sum()))] == [1, 1]


@pytest.mark.parametrize(
    ("workload", "compute", "said"),
    [
        ("", "device: none", "compute.device: none, which has no roofline"),
        (", observe: false", "device: v100", "the observer charges"),
    ],
)
def test_what_cannot_be_charged_is_refused(workload: str, compute: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(_LINES.format(workload=workload, compute=compute))


def test_the_native_kernel_refuses() -> None:
    spec = parse_spec(_LINES.format(workload="", compute="device: v100"))
    assert any("workload.charge" in text for text in missing_for(spec))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_program(tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("runs") / "first")


def run_program(home: Path, out: Path) -> Path:
    (home / "fabric.yaml").write_text(FABRIC + _COMPUTE)
    (home / "train.py").write_text(_PROGRAM)
    done = execute(
        home, "fabric.yaml", "--kernel", "virtual", "--ranks", "2", "--charge", "--out", str(out),
        "--", "python", "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


def test_a_rank_computes_for_exactly_as_long(trained: Path) -> None:
    expected_ns = DEVICE.time_ns(2 * 256 * 512 * 128, 4 * (256 * 512 + 512 * 128 + 256 * 128), 4)
    for log in load_run(trained).ranks:
        forward, backward = log.computes[:2]
        assert (forward.phase, backward.phase) == ("forward", "backward")
        first, second = log.collectives[:2]
        # The barriers are posted when the computing is over.
        assert (forward.end_ns - forward.start_ns, backward.end_ns - backward.start_ns) == (
            expected_ns, expected_ns,
        )  # fmt: skip
        assert (first.start_ns, second.start_ns) == (forward.end_ns, backward.end_ns)
        assert log.computes[2].iteration == 0


def test_gradients_travel_while_a_rank_computes(trained: Path) -> None:
    """DDP has made its buckets in the first step; then the first one's all-reduce is over before
    the last one is posted, and a step takes less than its parts."""
    run = load_run(trained)
    last = [c for c in collectives_of(run) if c.kind == "all_reduce" and c.iteration == 2]
    assert len(last) == 4
    assert last[0].end_ns < last[-1].start_ns
    for log in run.ranks:
        step = next(each for each in log.iterations if each.index == 2)
        computed_ns = sum(c.end_ns - c.start_ns for c in log.computes if c.iteration == 2)
        alone_ns = sum(c.duration_ns for c in last)
        assert computed_ns < step.end_ns - step.start_ns < computed_ns + alone_ns // 2
        assert {c.phase for c in log.computes if c.iteration == 2} == {
            "forward", "backward", "optimizer",
        }  # fmt: skip


def test_what_a_charged_backward_pass_waits_for_is_exposed(trained: Path) -> None:
    """The last bucket is posted when there is nothing left to compute beside it."""
    result = json.loads((trained / "result.json").read_text())
    for row in result["iterations"]:
        assert 0.02 < row["exposed_comm_ns"] / row["duration_ns"] < 1


def test_the_result_says_what_was_charged(trained: Path) -> None:
    result = json.loads((trained / "result.json").read_text())
    assert all(row["compute_ns"] > 0 for row in result["iterations"])
    computes = [c for log in load_run(trained).ranks for c in log.computes]
    note = next(note for note in result["notes"] if "computing was charged" in note)
    assert f"{sum(c.flops for c in computes):,} FLOP on 2 of 2 ranks" in note
    assert "device custom" in note and "threads of the program's own" in note


@pytest.mark.long
def test_two_charged_runs_are_the_same_bits(trained: Path) -> None:
    home = trained.parent / "home"
    home.mkdir()
    again = run_program(home, trained.parent / "again")
    for name in ("links.jsonl", "ranks/000.jsonl", "ranks/001.jsonl"):
        assert (again / name).read_bytes() == (trained / name).read_bytes(), name
    assert result_of(again)["iterations"] == result_of(trained)["iterations"]

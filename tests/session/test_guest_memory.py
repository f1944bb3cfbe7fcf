"""A guest gets memory for what its workload exchanges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator.guest_memory import guest_memory_bytes
from topologies.spec import Spec

_MB = 10**6
_RANKS = 4


def _spec(workload: dict[str, object]) -> Spec:
    fabric = {"kind": "flat", "hosts": 8, "link": {"rate": "100Gbps", "delay": "1us"}}
    return Spec.model_validate(
        {"name": "memory", "fabric": fabric, "workload": {"ranks": _RANKS, **workload}}
    )


def _needed_for_trace(run_directory: Path, nodes: list[dict[str, object]]) -> int:
    directory = run_directory / "replay"
    directory.mkdir()
    for rank in range(_RANKS):
        lines = [json.dumps({"id": n, "name": str(n), **node}) for n, node in enumerate(nodes)]
        (directory / f"{rank:03d}.jsonl").write_text("\n".join(lines))
    return guest_memory_bytes(_spec({"kind": "chakra", "path": "some/trace"}), run_directory)


def _collective(size_mb: int, *after: int) -> dict[str, object]:
    return {
        "kind": "collective", "collective": "all_reduce", "size_bytes": size_mb * _MB,
        "ranks": list(range(_RANKS)), "after": after,
    }  # fmt: skip


@pytest.mark.parametrize("size_mb", [1, 300])
def test_a_trace_needs_what_the_same_collective_needs(tmp_path: Path, size_mb: int) -> None:
    operation = {"kind": "all_reduce", "size": f"{size_mb}MB"}
    alike = guest_memory_bytes(_spec({"kind": "collectives", "operations": [operation]}), tmp_path)
    assert _needed_for_trace(tmp_path, [_collective(size_mb)]) == alike
    assert alike > _RANKS * size_mb * _MB


def test_what_may_be_under_way_together_counts_together(tmp_path: Path) -> None:
    needed = []
    for name, after in (("behind", (0,)), ("beside", ())):
        (tmp_path / name).mkdir()
        compute = {"kind": "compute", "duration_ns": 5}
        needed.append(
            _needed_for_trace(
                tmp_path / name, [_collective(300), _collective(200, *after), compute]
            )
        )
    behind, beside = needed
    assert beside - behind >= _RANKS * 200 * _MB


def test_nodes_that_wait_for_each_other_are_left_to_the_replay(tmp_path: Path) -> None:
    knot = [_collective(300, 1), _collective(300, 0), _collective(1)]
    (tmp_path / "free").mkdir()
    free = _needed_for_trace(tmp_path / "free", [_collective(1)])
    assert _needed_for_trace(tmp_path, knot) == free


def _needed(workload: dict[str, object]) -> int:
    return guest_memory_bytes(_spec({"ranks": 8, **workload}), Path())


@pytest.mark.parametrize(
    ("workload", "measured_mb"),
    [
        ({"layers": 2, "hidden": 64, "vocabulary": 512}, 835),
        ({}, 2617),
        ({"overlap": False}, 1244),
        ({"layers": 24}, 4299),
        ({"parallelism": {"pipeline": 8}, "batch_size": 64}, 2473),
        ({"parallelism": {"tensor": 8}, "batch_size": 64, "microbatches": 1}, 1814),
    ],
    ids=["small", "default", "no overlap", "24 layers", "pipeline", "tensor"],
)
def test_training_gets_what_it_was_measured_to_take(
    workload: dict[str, object], measured_mb: int
) -> None:
    """Measured: most of the guest's memory file in use during two steps (one for tensor), 8 ranks
    at 100 Gb/s with 32 MB per port, in guests of 8 and 12 GB."""
    needed = _needed({"kind": "training", "parallelism": {"data": 8}, **workload})
    assert measured_mb * _MB <= needed <= 2 * measured_mb * _MB


def test_gradients_on_their_way_are_held_together() -> None:
    training = {"kind": "training", "parallelism": {"data": 8}, "hidden": 1024}
    layer_bytes = 12 * 1024**2 * 4
    shallow, deep = (_needed({**training, "layers": layers}) for layers in (8, 24))
    assert deep - shallow == 8 * 16 * layer_bytes
    alone = [_needed({**training, "layers": layers, "overlap": False}) for layers in (8, 24)]
    assert alone[0] == alone[1] < shallow


def test_a_dlrm_layer_larger_than_a_bucket_is_one() -> None:
    dlrm = {"kind": "dlrm", "bucket": "1MB"}
    narrow, wide = (_needed({**dlrm, "top_mlp": [1024, n, 1]}) for n in (1024, 65_536))
    assert wide - narrow > 8 * 4 * 1024 * (65_536 - 1024)

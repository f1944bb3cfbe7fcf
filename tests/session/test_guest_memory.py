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
    fabric = {"kind": "flat", "hosts": _RANKS, "link": {"rate": "100Gbps", "delay": "1us"}}
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

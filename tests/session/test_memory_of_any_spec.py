"""A guest has room for whatever a spec asks for: sections drawn at random, together."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.session.command import groundwire

_FABRICS: list[dict[str, Any]] = [
    {"kind": "flat", "hosts": 16},
    {"kind": "fat-tree", "k": 4},
    {"kind": "torus", "dims": [4, 4]},
    {"kind": "leaf-spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 4},
]
_QUEUES: list[dict[str, Any]] = [
    {"kind": "droptail", "buffer": "300KB"},
    {"kind": "dctcp", "k": "100KB", "buffer": "4MB"},
    {"kind": "fq_codel"},
    {"kind": "lossless"},
]
_TRANSPORTS: list[dict[str, Any]] = [
    {"congestion_control": "cubic"},
    {"congestion_control": "dctcp"},
    {"congestion_control": "reno", "rcvbuf": "256KB", "sndbuf": "256KB"},
]
_WORKLOADS: list[dict[str, Any]] = [
    {"kind": "dlrm", "ranks": 16, "iterations": 1},
    {"kind": "training", "ranks": 16, "layers": 2, "hidden": 256, "parallelism": {"data": 16}},
    {"kind": "collectives", "ranks": 16, "operations": [{"kind": "all_to_all", "size": "16MiB"}]},
    {
        "kind": "collectives",
        "ranks": 16,
        "iterations": 2,
        "operations": [{"kind": "all_reduce", "size": "16MB"}, {"kind": "incast", "size": "4MB"}],
    },
]
_CAPTURES: list[dict[str, Any]] = [
    {"points": []},
    {"points": ["hosts"]},
    {"points": ["all"], "snaplen": 9038, "backend": "ring"},
]
_COUNTERS: list[dict[str, Any]] = [{}, {"interval": "10us"}, {"interval": "100ns"}]


def _drawn(seed: int) -> dict[str, Any]:
    """A spec; the same one for the same seed."""
    draw = Random(seed).choice
    link = {"rate": draw(["10Gbps", "100Gbps"]), "delay": "1us", "mtu": draw([1500, 9000])}
    return {
        "name": f"drawn-{seed}",
        "seed": seed,
        "fabric": {**draw(_FABRICS), "link": link, "queue": draw(_QUEUES)},
        "transport": draw(_TRANSPORTS),
        "workload": draw(_WORKLOADS),
        "capture": draw(_CAPTURES),
        "counters": draw(_COUNTERS),
        "payload": draw(["checked", "timing"]),
        "predict": [],
        "virtual": {"ranks_per_process": draw([1, 16]), "connections": draw(["eager", "lazy"])},
    }


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_a_guest_has_room_for_any_spec(tmp_path: Path, seed: int) -> None:
    spec, out = tmp_path / "spec.yaml", tmp_path / "run"
    spec.write_text(json.dumps(_drawn(seed)))
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out)
    assert done.returncode == 0, f"{_drawn(seed)}\n{done.stderr}"
    assert json.loads((out / "result.json").read_text())["valid"] is True

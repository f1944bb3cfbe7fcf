"""Runs whose processes need more mappings than a host grants run by default.

Outputs of an all-to-all are touched block by block, in the order in which blocks come: with N ranks
in a process, each of these pages may need a mapping of its own (`vm.max_map_count`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import groundwire

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def _fabric(hosts: int) -> dict[str, Any]:
    return {
        "kind": "flat",
        "hosts": hosts,
        "link": {"rate": "100Gbps", "delay": "1us", "mtu": 9000},
    }


_LEAF_SPINE = {
    "kind": "leaf-spine",
    "leaves": 32,
    "spines": 16,
    "hosts_per_leaf": 32,
    "link": {"rate": "100Gbps", "delay": "1us", "mtu": 9000},
}


def _collectives(ranks: int, size: str, iterations: int) -> dict[str, Any]:
    operations = [{"kind": kind, "size": size} for kind in ("all_reduce", "all_to_all")]
    return {
        "kind": "collectives",
        "ranks": ranks,
        "iterations": iterations,
        "operations": operations,
    }


@pytest.mark.parametrize(
    ("ranks", "workload", "more"),
    [
        pytest.param(256, _collectives(256, "999424B", 2), {}, id="256-ranks"),
        pytest.param(
            128, _collectives(128, "8MB", 4), {"capture": {"points": []}}, id="128-ranks-of-8MB"
        ),
        pytest.param(128, _collectives(128, "8MB", 1), {}, id="128-ranks-captured"),
        pytest.param(
            512, _collectives(512, "1048576B", 1), {"capture": {"points": []}}, id="512-ranks"
        ),
        pytest.param(64, _collectives(64, "32MB", 1), {}, id="64-ranks-of-32MB-captured"),
        pytest.param(16, _collectives(16, "32MB", 8), {}, id="16-ranks-of-32MB"),
        pytest.param(256, {"kind": "dlrm", "ranks": 256}, {}, id="dlrm-of-256"),
        pytest.param(
            1024,
            {
                "kind": "collectives",
                "ranks": 1024,
                "operations": [{"kind": "all_reduce", "size": "1MB"}],
            },
            {"fabric": _LEAF_SPINE},
            id="1024-ranks",
        ),
    ],
)
def test_many_ranks_run_by_default(
    tmp_path: Path, ranks: int, workload: dict[str, Any], more: dict[str, Any]
) -> None:
    spec = {"name": "many", "fabric": _fabric(ranks), "workload": workload, **more}
    file = tmp_path / "many.yaml"
    file.write_text(json.dumps({**spec, "predict": ["alpha-beta"]}))
    run = groundwire.run(file, kernel="virtual", out=tmp_path / "out", pages=False)
    assert run.result["valid"], run.result["invalid_reasons"]

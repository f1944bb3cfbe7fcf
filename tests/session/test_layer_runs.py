"""A layer table trained on real ranks, in the virtual kernel, against its own prediction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.runs.run import load_run
from tests.session.command import run_spec

pytestmark = pytest.mark.copies

SPEC = """
name: table
fabric: {kind: rails, servers: 2, hosts_per_server: 2, links: {scale-up: {rate: 400Gbps}}}
workload:
  kind: layers
  ranks: 4
  iterations: 2
  parallelism: hybrid-data-model
  innermost: 2
  layers:
    - name: a
      forward: {compute: 100us, collective: all_gather, size: 100KB}
      input_gradient: {compute: 100us}
      weight_gradient: {compute: 100us, collective: all_reduce, size: 4MB}
      update: 5us
    - name: b
      forward: {compute: 300us, collective: reduce_scatter, size: 100KB}
      input_gradient: {compute: 200us, collective: all_to_all, size: 100KB}
      weight_gradient: {compute: 300us, collective: all_reduce, size: 2MB}
predict: [alpha-beta, flow]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_spec(tmp_path_factory.mktemp("layers"), SPEC)


def test_ranks_compute_and_exchange_what_the_table_says(run: Path) -> None:
    for log in load_run(run).ranks:
        mine = [c for c in log.collectives if c.iteration == 1 and c.phase != "align"]
        assert len(mine) == 2 * (2 + 1 + 2)
        assert log.checks == 2 * len(mine)
        # Twice 600 + 500 us; only a's gradients have an update, once for each pass.
        computed = sum(k.end_ns - k.start_ns for k in log.computes if k.iteration == 1)
        # A sleep ends in the nanosecond after.
        assert 0 <= computed - (2 * (300_000 + 800_000) + 2 * 5_000) <= 14


def test_the_second_pass_waits_for_gradients_where_it_needs_them(run: Path) -> None:
    log = load_run(run).ranks[0]
    ends = {c.id: c.end_ns for c in log.collectives}
    forward = [k for k in log.computes if k.phase == "forward" and k.iteration == 1]
    second = {k.name: k.start_ns for k in forward[2:]}
    for index, layer in enumerate("ab"):
        assert second[layer] >= ends[f"i1.weight_gradient.0.{index}.{layer}"]
    # It is not the whole backward pass that is waited for: b's gradients overlap.
    start = next(c for c in log.collectives if c.id == "i1.weight_gradient.0.1.b").start_ns
    assert start < min(k.start_ns for k in log.computes if k.name == "a" and k.start_ns > start)


def test_the_prediction_of_the_whole_is_near(run: Path) -> None:
    found = json.loads((run / "result.json").read_text())
    assert found["valid"] is True
    warm = found["iterations"][1]
    assert warm["duration_ns"] > 2_210_000
    assert abs(warm["predicted"]["flow"]["error"]) < 0.08, warm

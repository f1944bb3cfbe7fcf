"""Hierarchical all-reduces on rails, in the virtual kernel: what the NICs' port counters say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.session.command import groundwire

SERVERS, SIZE_BYTES = 2, 4_000_000
SETUP_BYTES = 64_000
"""More than the store and the connections of 16 ranks take at rank 0."""
SPEC = """
name: rails
fabric:
  kind: rails
  servers: {servers}
  hosts_per_server: {local}
  links: {{scale-up: {{rate: 800Gbps}}}}
workload:
  kind: collectives
  ranks: {ranks}
  operations: [{{kind: all_reduce, size: {size}}}]
collectives:
  backend: programs
  all_reduce: {{algorithm: hierarchical, across: double-binary-tree, full_size: {full}, chunks: 4}}
capture: {{points: []}}
"""


def nic_bytes(directory: Path, local: int, full_size: bool) -> list[int]:
    """The bytes that the NICs sent, host by host: frames as Linux counts them."""
    full = str(full_size).lower()
    spec = directory / f"full-{full}.yaml"
    ranks = SERVERS * local
    spec.write_text(
        SPEC.format(servers=SERVERS, local=local, ranks=ranks, size=SIZE_BYTES, full=full)
    )
    out = directory / full
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "result.json").read_text())["valid"] is True
    ports = [json.loads(line) for line in (out / "links.jsonl").read_text().splitlines()]
    found = [p for p in ports if p["node"].startswith("h") and p["peer"].startswith("rail")]
    assert len(found) == ranks
    return [port["bytes"] for port in found]


@pytest.mark.parametrize("local", [2, pytest.param(8, marks=pytest.mark.long)])
def test_scattering_inside_divides_scale_out_bytes_by_the_local_ranks(
    tmp_path: Path, local: int
) -> None:
    """Between two servers a tree carries each element once in each direction. All rails carry the
    same."""
    full = nic_bytes(tmp_path, local, full_size=True)
    scattered = nic_bytes(tmp_path, local, full_size=False)
    assert sum(full) == pytest.approx(SERVERS * local * SIZE_BYTES, rel=0.02)
    assert sum(full) / sum(scattered) == pytest.approx(local, rel=0.02)
    for sent in (full, scattered):
        assert max(sent) <= sum(sent) / len(sent) + SETUP_BYTES

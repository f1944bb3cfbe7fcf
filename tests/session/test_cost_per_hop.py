"""A packet-hop costs the guest no more with more ranks. Counted, not timed: seconds also tell how
much of the processor's caches is left (docs/virtual-speed.md)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.session.command import groundwire
from tests.traced import skip_where_traced

pytestmark = pytest.mark.copies

# A Gloo message costs more than its packets do, so all runs have messages of one size.
MESSAGE_BYTES = 48_000
_SPEC = """
name: star
fabric:
  kind: flat
  hosts: {ranks}
  link: {{rate: 100Gbps, delay: 1us, mtu: 9000}}
  queue: {{kind: droptail, buffer: 32MB}}
workload:
  kind: collectives
  ranks: {ranks}
  iterations: {iterations}
  operations: [{{kind: {kind}, size: {size}B}}]
compute: {{device: none}}
capture: {{points: []}}
predict: []
virtual: {{ranks_per_process: 1}}
"""


def _counted(directory: Path, kind: str, ranks: int, iterations: int) -> Counter[str]:
    directory.mkdir()
    spec = directory / "spec.yaml"
    size = ranks * MESSAGE_BYTES
    spec.write_text(_SPEC.format(ranks=ranks, iterations=iterations, kind=kind, size=size))
    done = groundwire("run", spec, "--kernel", "virtual", "--out", directory / "out")
    assert done.returncode == 0, done.stderr
    lines = (directory / "out" / "links.jsonl").read_text().splitlines()
    stops = json.loads((directory / "out" / "environment.json").read_text())["stops"]
    return Counter(stops, hops=sum(json.loads(line)["packets"] for line in lines))


def _per_hop(directory: Path, kind: str, ranks: int, few: int, many: int) -> dict[str, float]:
    """Counts per hop in the iterations by which the runs differ: work that is done once has no part
    in it."""
    counted = _counted(directory / f"{ranks}-{many}", kind, ranks, many)
    counted.subtract(_counted(directory / f"{ranks}-{few}", kind, ranks, few))
    return {name: counted[name] / counted["hops"] for name in ("calls", "switches")}


@skip_where_traced
@pytest.mark.parametrize("kind", ["all_reduce", pytest.param("all_to_all", marks=pytest.mark.long)])
def test_more_ranks_cost_no_more_per_packet_hop(tmp_path: Path, kind: str) -> None:
    few = _per_hop(tmp_path, kind, ranks=4, few=10, many=60)
    many = _per_hop(tmp_path, kind, ranks=16, few=1, many=6)
    # Not bound to be equal: who waits for several connections finds more or fewer of them ready.
    for name, cost in many.items():
        assert cost < 1.05 * few[name], (name, few, many)

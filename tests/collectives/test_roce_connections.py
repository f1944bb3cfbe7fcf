"""Several queue pairs of two ranks, in the virtual kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.decode.run_capture import load_capture
from analysis.runs.run import load_run
from emulator.transports import emulated
from tests.session.command import run_spec, valid_rows
from topologies.spec.spec import parse_spec

SPEC = """
name: connections
fabric: {kind: leaf-spine, leaves: 2, spines: 4, hosts_per_leaf: 2,
  link: {rate: 100Gbps, delay: 1us, mtu: 4200}}
transport: {kind: roce, path_mtu: 4096, connections: 16, spread: SPREAD}
workload: {kind: collectives, ranks: 4, operations: [
  {kind: all_reduce, size: 1MB}, {kind: all_to_all, size: 999984}, {kind: all_reduce, size: 8}]}
collectives: {backend: programs, all_reduce: {algorithm: ring, chunks: 4},
  all_to_all: {algorithm: direct}}
predict: [packet]
"""


@pytest.mark.parametrize("spread", ["split", "messages"])
def test_messages_arrive_whole_over_all_connections(tmp_path: Path, spread: str) -> None:
    directory = run_spec(tmp_path, SPEC.replace("SPREAD", spread))
    assert len(valid_rows(directory, 0)) == 3  # ranks check what arrives
    run = load_run(directory)
    assert [len(log.queue_pairs) for log in run.ranks] == [3 * 16] * 4
    capture = load_capture(run)
    assert capture is not None
    assert capture.attribution.unattributed_bytes == 0
    result = json.loads((directory / "result.json").read_text())
    for row in result["collectives"]:
        # The engine follows each queue pair, by the way that its own port takes.
        assert row["predicted"]["packet"]["duration_ns"] == pytest.approx(
            row["duration_ns"], rel=0.005
        )
    if spread == "split":
        # A queue pair's UDP port is of its number: 4 pairs of ranks with 16 each use all spines.
        spines = [link.bytes for link in run.port_counters if link.node.startswith("spine")]
        assert min(spines) > 0


def test_memory_is_that_of_all_queue_pairs() -> None:
    one, many = (
        parse_spec(SPEC.replace("SPREAD", "split").replace("connections: 16", f"connections: {n}"))
        for n in (1, 16)
    )
    more = emulated(many).rank_bytes(many, 0) - emulated(one).rank_bytes(one, 0)
    assert more == 15 * emulated(one).rank_bytes(one, 0)

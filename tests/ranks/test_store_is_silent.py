"""No packet of the store goes beside a collective: ranks have acknowledged by then what it said."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.decode.run_capture import load_capture
from analysis.runs.collectives import collectives_of
from analysis.runs.run import load_run
from emulator.ranks.program_jobs import MASTER_PORT
from tests.session.command import groundwire

_SPEC = """
name: slow
fabric: {kind: flat, hosts: 4, link: {rate: 1Gbps, delay: 1us, mtu: 9000}}
workload:
  kind: collectives
  ranks: 4
  operations: [{kind: all_reduce, size: 4MB}]
compute: {device: none}
payload: timing
predict: []
capture: {points: [hosts]}
"""
_DELAYED_NS = 40_000_000
"""TCP_DELACK_MIN: by when a rank has answered its store by itself."""


@pytest.mark.parametrize("per_process", [4, pytest.param(1, marks=pytest.mark.long)])
def test_no_packet_of_the_store_goes_beside_a_collective(tmp_path: Path, per_process: int) -> None:
    """One that takes until after those acknowledgements would have been due."""
    spec, out = tmp_path / "spec.yaml", tmp_path / "out"
    spec.write_text(_SPEC)
    done = groundwire(
        "run", spec, "--kernel", "virtual", "--out", out,
        "--set", f"virtual.ranks_per_process={per_process}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = load_run(out)
    capture = load_capture(run)
    assert capture is not None
    (collective,) = collectives_of(run)
    began_ns = min(each.start_ns for each in collective.by_rank.values())
    ended_ns = max(each.end_ns for each in collective.by_rank.values())
    assert ended_ns - began_ns > _DELAYED_NS
    seen = 0
    for file in capture.files:
        at_ns = file.timestamp_ns - capture.clock_offset_ns
        of_store = (file.source_port == MASTER_PORT) | (file.destination_port == MASTER_PORT)
        assert not (of_store & (at_ns >= began_ns) & (at_ns <= ended_ns)).any()
        seen += int(of_store.sum())
    assert seen

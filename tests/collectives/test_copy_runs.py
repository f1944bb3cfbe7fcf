"""Messages inside a server as copies of memory, in the virtual kernel: `packet` follows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.metrics.link import port_metrics
from analysis.runs.copies import CopyRecord, copies_of
from analysis.runs.run import load_run
from tests.session.command import groundwire

RATE_BPS, DELAY_NS = 2_966_400_000_000, 100
KB = 1024

NCCL = """
name: two-by-four
fabric:
  kind: rails
  server: dgx-h100
  servers: 2
  hosts_per_server: 4
  spines: 1
  queue: {kind: lossless}
  scale_up: {kind: copies}
workload:
  kind: collectives
  ranks: 8
  operations:
    - {kind: all_reduce, size: 256KiB}
    - {kind: all_to_all, size: 256KiB}
    - {kind: all_gather, size: 64KiB}
collectives: {backend: nccl}
transport: {kind: roce, path_mtu: 4096}
predict: [packet]
capture: {points: []}
"""

NVLS = """
name: nvls
fabric: {kind: rails, server: dgx-h100, servers: 1, hosts_per_server: 3, scale_up: {kind: copies}}
workload:
  kind: collectives
  ranks: 3
  operations:
    - {kind: all_reduce, size: 48KiB}
    - {kind: broadcast, size: 1MiB, program: {algorithm: tree}}
collectives: {backend: nccl, env: {NCCL_ALGO: "allreduce:nvls"}}
payload: timing
predict: [packet]
capture: {points: []}
"""


def result_of(spec: str, directory: Path) -> tuple[dict[str, Any], Path]:
    """The result of a run of a spec, and its directory."""
    file, out = directory / "spec.yaml", directory / "run"
    file.write_text(spec)
    done = groundwire("run", file, "--kernel", "virtual", "--out", out)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert found["valid"] is True
    return found, out


def times(result: dict[str, Any]) -> list[tuple[int, int]]:
    """Measured and predicted, of the iterations, which are predicted from the spec."""
    return [
        (each["duration_ns"], each["predicted"]["packet"]["duration_ns"])
        for each in result["iterations"]
    ]


def occupied_ns(copy: CopyRecord) -> int:
    return -(-copy.bytes * 8 * 10**9 // RATE_BPS)


def test_collectives_of_two_servers_are_those_of_packet_to_the_nanosecond(tmp_path: Path) -> None:
    """Inside a server by copies, between servers over RoCE; all payloads are checked."""
    result, out = result_of(NCCL, tmp_path)
    assert result["payload_checked"] is True
    for measured, predicted in times(result):
        assert measured == predicted
    run = load_run(out)
    copies = copies_of(run)
    # No more bytes than that are copied, and none of them twice.
    assert result["copies"]["bytes"] == sum(copy.bytes for copy in copies)
    # Each of 8 ranks keeps an eighth of its own and sends an eighth to 3 neighbours.
    rows = {row["kind"]: row for row in result["collectives"]}
    assert rows["all_to_all"]["copied_bytes"] == 8 * 3 * 256 * KB // 8
    for copy in copies:
        assert copy.begin_ns >= copy.ready_ns
        assert copy.end_ns >= copy.begin_ns + 2 * DELAY_NS + occupied_ns(copy)
    counted = {(port.record.node, port.record.peer): port for port in port_metrics(run)}
    into_root = counted["server0", "h0"]
    assert into_root.record.copied_bytes == sum(c.bytes for c in copies if c.links[-1] == 1)
    assert into_root.wire_bytes > into_root.record.copied_bytes
    assert all(not port.record.copies for (_, peer), port in counted.items() if "rail" in peer)


def test_the_switch_of_a_server_gets_and_gives_copies(tmp_path: Path) -> None:
    result, out = result_of(NVLS, tmp_path)
    for measured, predicted in times(result):
        assert measured == predicted
    rows = {row["kind"]: row for row in result["collectives"]}
    copies = copies_of(load_run(out))
    assert rows["all_reduce"]["algorithm"] == "nccl"
    of_switch = [copy for copy in copies if len(copy.links) == 1]
    assert len(of_switch) == rows["all_reduce"]["copies"]
    # A broadcast to two others is two copies out of the root's port, or one after the other.
    assert rows["broadcast"]["copied_bytes"] == 2 << 20
    first = min((c for c in copies if c.bytes == 1 << 20), key=lambda copy: copy.end_ns)
    assert first.end_ns - first.ready_ns == 2 * DELAY_NS + 2828

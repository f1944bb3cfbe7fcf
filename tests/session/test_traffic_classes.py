"""Jobs of different classes on the same hosts: as measured, predicted and captured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.decode.tcp.pcap import read_pcap
from tests.session.command import groundwire, result_of, run_spec

pytestmark = pytest.mark.copies

_SPEC = """
name: classes
fabric:
  kind: flat
  hosts: 4
  link: {rate: 100Gbps, delay: 1us, mtu: 9000}
  queue:
    kind: classes
    classes:
      bulk: {priority: 0, queue: {kind: droptail, buffer: 100MB}}
      train: {priority: 3, queue: {kind: lossless}}
transport: {initial_window: 1000, rcvbuf: 64MB, sndbuf: 64MB}
jobs:
  - name: train
    class: train
    workload: {kind: collectives, ranks: 4, operations: [{kind: all_reduce, size: 4MB}]}
  - name: noise
    placement: {0: h0, 1: h1, 2: h2, 3: h3}
    workload: {kind: flows, ranks: 4, sizes: 8MB, pattern: random}
  - name: tool
    class: 6
    placement: {0: h0, 1: h2}
    workload:
      kind: command
      ranks: 2
      argv:
        - python3
        - -c
        - |
          import socket
          s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
          s.sendto(bytes(1000), ("h1", 9000))
predict: [flow]
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("classes")
    (home / "spec.yaml").write_text(_SPEC)
    done = groundwire("run", home / "spec.yaml", "--kernel", "virtual", "--out", home / "run")
    assert done.returncode == 0, done.stderr
    return home / "run"


def _job(run: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(job for job in result_of(run)["jobs"] if job["name"] == name)
    return found


def test_a_strict_class_hardly_notices_the_others(ran: Path) -> None:
    (row,) = [row for row in result_of(ran)["collectives"] if row["job"] == "train"]
    assert row["predicted"]["flow"]["error"] == pytest.approx(0, abs=0.08)
    # A ring of 4 moves 1.5 times its size; with one packet of others before each of its own at
    # most, and not with their 8 MB.
    assert row["duration_ns"] < 1.5 * 1.5 * 4_000_000 * 8 / 100


def test_what_a_class_leaves_is_predicted_too(ran: Path) -> None:
    rows = [row for row in result_of(ran)["collectives"] if row["job"] == "noise"]
    errors = [row["predicted"]["flow"]["error"] for row in rows]
    assert len(errors) == 4
    assert np.abs(errors).max() < 0.08


def test_every_class_is_counted_at_every_port(ran: Path) -> None:
    for line in (ran / "links.jsonl").read_text().splitlines():
        port = json.loads(line)
        bulk, train = port["classes"]
        assert (bulk["class"], bulk["priority"]) == ("bulk", 0)
        assert (train["class"], train["priority"]) == ("train", 3)
        # Packets count that have begun to leave, and those that have left, of the last few
        # acknowledgements.
        assert bulk["bytes"] + train["bytes"] == pytest.approx(port["bytes"], abs=1000)
        assert min(bulk["packets"], train["packets"]) > 0
        assert bulk["drops"] == train["drops"] == 0


def test_packets_carry_the_class_of_their_job_whatever_program_sends_them(ran: Path) -> None:
    packets = read_pcap(ran / "capture" / "h0-eth0.pcap")
    assert set((packets.tos >> 5).tolist()) == {0, 3, 6}
    sent = packets.tos[~packets.is_tcp]
    assert set((sent >> 5).tolist()) == {6}


_ROCE = """
name: converged
fabric:
  kind: flat
  hosts: 2
  link: {rate: 100Gbps, delay: 1us, mtu: 4200}
  queue:
    kind: classes
    classes:
      tcp: {priority: 1, weight: 1, queue: {kind: droptail, buffer: 4MB}}
      rdma: {priority: 3, weight: 3, queue: {kind: lossless}}
transport: {kind: roce, path_mtu: 4096, class: rdma}
class: tcp
workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1MB}]}
collectives: {backend: programs, all_reduce: {algorithm: ring}}
predict: [flow]
"""


def test_queue_pairs_have_a_class_of_their_own_beside_tcp(tmp_path: Path) -> None:
    run = run_spec(tmp_path, _ROCE)
    packets = read_pcap(run / "capture" / "h0-eth0.pcap")
    assert set((packets.tos[~packets.is_tcp] >> 5).tolist()) == {3}
    assert set((packets.tos[packets.is_tcp] >> 5).tolist()) == {1}
    (row,) = result_of(run)["collectives"]
    assert row["predicted"]["flow"]["error"] == pytest.approx(0, abs=0.05)
    for line in (run / "links.jsonl").read_text().splitlines():
        tcp, rdma = json.loads(line)["classes"]
        assert (tcp["class"], rdma["class"]) == ("tcp", "rdma")
        assert rdma["bytes"] > 1_000_000

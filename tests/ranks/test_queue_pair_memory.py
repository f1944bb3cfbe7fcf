"""Queue pairs and what they send are counted in a guest's memory, and refused where they are too
many."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.guest_memory import guest_memory_bytes
from emulator.transports import emulated
from emulator.transports.roce.memory import (
    QUEUE_PAIR_BYTES,
    TIMELY_BYTES,
    devices_bytes,
    queue_pairs_of,
)
from tests.session.command import groundwire
from topologies.spec.spec import Spec, parse_spec

SPEC = """
name: pairs
fabric: {{kind: flat, hosts: {hosts}, link: {{rate: 100Gbps, delay: 1us, mtu: 4300}},
  queue: {{kind: lossless, buffer: 32MB}}}}
transport: {transport}
workload: {workload}
collectives: {{backend: programs, all_reduce: {{algorithm: ring}}}}
virtual: {{memory: {memory}}}
"""
RAILS = """
name: rails
fabric: {kind: rails, servers: 4, hosts_per_server: 8, servers_per_leaf: 1, spines: 4,
  link: {rate: 100Gbps, delay: 1us, mtu: 4300}}
workload: {kind: collectives, ranks: 32, operations: [{kind: all_reduce, size: 1MB}]}
collectives: {backend: programs, all_reduce: {algorithm: ring}}
"""
WORKLOAD = "{{kind: collectives, ranks: {ranks}, operations: [{{kind: all_reduce, size: 1MB}}]}}"
TRAINING = "{kind: training, parallelism: {data: 4, tensor: 2, pipeline: 1}}"


def _spec(
    control: str = "none", ranks: int = 32, workload: str = "", memory: str = "auto", hosts: int = 0
) -> Spec:
    transport = f"{{kind: roce, path_mtu: 4096, congestion_control: {control}}}"
    return parse_spec(
        SPEC.format(
            transport=transport if control != "tcp" else "{kind: tcp}",
            workload=workload or WORKLOAD.format(ranks=ranks),
            hosts=hosts or ranks,
            memory=memory,
        )
    )


def test_each_pair_of_ranks_of_each_group_has_two_queue_pairs() -> None:
    assert queue_pairs_of(_spec(ranks=32)) == 32 * 31
    # Beside all eight ranks: four groups of two and two of four.
    assert queue_pairs_of(_spec(workload=TRAINING)) == 8 * 7 + 4 * 2 + 2 * 4 * 3


def test_a_guest_has_room_for_them() -> None:
    def more(control: str, ranks: int) -> int:
        over_tcp = guest_memory_bytes(_spec("tcp", ranks), Path())
        return guest_memory_bytes(_spec(control, ranks), Path()) - over_tcp

    pairs = 128 * 127
    assert more("none", 128) > pairs * QUEUE_PAIR_BYTES
    assert more("timely", 128) - more("none", 128) == pairs * TIMELY_BYTES
    # Messages that switches can hold are under way besides, in twice the memory.
    assert more("none", 32) > 32 * 31 * QUEUE_PAIR_BYTES + 2 * 32 * 10**6


def test_each_namespace_has_its_part_of_each_device() -> None:
    # 70,600 KiB of the kernel's more with 64 devices and 44 nodes, by /proc/meminfo.
    rails = RAILS + "transport: {kind: roce, path_mtu: 4096}"
    assert 70_600 * 2**10 < devices_bytes(parse_spec(rails)) < 1.2 * 70_600 * 2**10
    assert emulated(_spec("tcp")).fabric_bytes(_spec("tcp")) == 0


@pytest.mark.parametrize(("ranks", "memory", "least"), [(32, "500MB", 553), (128, "1GB", 2047)])
def test_more_than_a_guest_has_room_for_are_refused_before_it_starts(
    tmp_path: Path, ranks: int, memory: str, least: int
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(_spec(ranks=ranks, memory=memory).to_yaml())
    done = groundwire("run", spec, "--kernel", "virtual", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert (
        f"virtual.memory: found {memory}; expected at least {least}MB: {ranks * (ranks - 1):,} "
        f"queue pairs of {ranks} ranks" in done.stderr
    )
    assert not (tmp_path / "run").exists()

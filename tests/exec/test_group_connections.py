"""A script's ranks log the connections of all its process groups, each by the group's name."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from analysis.decode.run_capture import load_capture
from analysis.decode.tcp.stream import TcpConnection
from analysis.predict.setting import setting_of
from analysis.runs.run import load_run
from tests.exec.programs import execute
from tests.session.command import result_of
from workloads.observer.group_sockets import GroupSockets

_STORE = 1
_LEAVES = """
fabric:
  kind: leaf-spine
  leaves: 2
  spines: 4
  hosts_per_leaf: 2
  link: {rate: 100Gbps, delay: 1us, mtu: 9000}
transport: {kind: tcp, connections: 2}
collectives: {backend: programs, all_reduce: {algorithm: ring}}
predict: [packet]
capture: {points: [hosts]}
"""
_SCRIPT = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
for name in ("dp", "tp"):
    dist.all_reduce(torch.ones(500_000), group=mesh.get_group(name))
three = dist.new_group([0, 2, 3])
if dist.get_rank() != 1:
    dist.all_reduce(torch.ones(500_000), group=three)
dist.all_reduce(torch.ones(500_000))
dist.destroy_process_group()
"""
_GROUPS = {
    "default": (0, 1, 2, 3),
    "group.1": (0, 2),
    "group.2": (1, 3),
    "group.3": (0, 1),
    "group.4": (2, 3),
    "group.5": (0, 2, 3),
}
_NAMES = {f"{name}{more}": ranks for name, ranks in _GROUPS.items() for more in ("", "#1")}


def test_a_script_s_groups_tell_of_their_ports(tmp_path: Path) -> None:
    """Two connections of each two ranks of each group: captures have them, and all bytes are
    theirs. Predictions know the paths, which cross the spines: with drawn ones they are up to a
    third off."""
    (tmp_path / "leaves.yaml").write_text(_LEAVES)
    (tmp_path / "mesh.py").write_text(_SCRIPT)
    done = execute(tmp_path, "leaves.yaml", "--out", "run", "--", "torchrun", "mesh.py")
    assert done.returncode == 0, done.stderr[-3000:]
    run = load_run(tmp_path / "run")
    told = {
        (one.group, log.rank, one.peer): (one.port, one.peer_port)
        for log in run.ranks
        for one in log.connections
    }
    pairs = {(n, a, b) for n, ranks in _NAMES.items() for a in ranks for b in ranks if a < b}
    assert set(told) == pairs
    measured = {(one.group, log.rank, one.peer) for log in run.ranks for one in log.handshakes}
    assert measured == pairs | {(name, b, a) for name, a, b in pairs}

    capture = load_capture(run)
    assert capture is not None
    found = capture.attribution
    assert {each.member.group for each in found.connections} <= set(_NAMES)
    ways = [
        each.connection.forward
        for each in found.connections
        if isinstance(each.connection, TcpConnection)
    ]
    assert len(ways) == len(pairs)
    on_wire = {frozenset((way.source.port, way.destination.port)) for way in ways}
    assert on_wire <= {frozenset(ports) for ports in told.values()}
    assert (found.unattributed_bytes, found.assumed_bytes, found.unlogged_bytes) == (0, 0, 0)

    setting = setting_of(run)
    assert setting.group_ports["group.1"] == {(0, 2): told["group.1", 0, 2]}
    result = result_of(tmp_path / "run")
    large = [row for row in result["collectives"] if row["size_bytes"] == 2_000_000]
    assert {row["group"] for row in large} == set(_GROUPS)
    for row in large:
        assert abs(row["predicted"]["packet"]["error"]) < 0.05, row


def test_connections_are_those_that_come_with_the_group() -> None:
    """Rank 0 is at 127.0.0.1, where others connect. A connection of the program's own, that of the
    store and one to a rank outside are none of them."""
    addresses = [f"127.0.0.{1 + rank}" for rank in range(3)]
    with socket.create_server((addresses[0], 0)) as server:
        ends: list[socket.socket] = []

        def connect(rank: int) -> int:
            end = socket.create_connection(
                server.getsockname(), source_address=(addresses[rank], 0)
            )
            ends.extend((end, server.accept()[0]))
            port: int = end.getsockname()[1]
            return port

        try:
            sockets = GroupSockets(addresses, _STORE)
            connect(1)
            sockets.pass_by()
            first, outside = connect(1), connect(2)
            sockets.made()
            second = connect(1)
            sockets.made()
            lines = [*sockets.lines("group.1", [0, 1], 0)]
            assert [*sockets.lines("group.2", [0, 2], 0)] == []
            shared = GroupSockets([addresses[0]] * 2 + [addresses[2]], _STORE)
            others = [*shared.lines("group.3", [0, 1, 2], 0)]
        finally:
            for end in ends:
                end.close()
    here = lines[0]["port"]
    connections = [line for line in lines if line["event"] == "connection"]
    assert connections == [
        {"event": "connection", "group": name, "peer": 1, "port": here, "peer_port": port}
        for name, port in (("group.1", first), ("group.1#1", second))
    ]
    told = [line for line in lines if line["event"] == "handshake"]
    assert [(line["group"], line["peer"]) for line in told] == [("group.1", 1), ("group.1#1", 1)]
    assert all(line["greeting_us"] is None for line in told)
    assert others == [
        {
            "event": "socket", "group": "group.3", "peer_address": addresses[2],
            "port": here, "peer_port": outside,
        }
    ]  # fmt: skip


@pytest.mark.parametrize("twice", [False, True])
def test_two_connections_that_come_at_once_are_not_told_of(twice: bool) -> None:
    """Nobody knows which is the group's."""
    addresses = ["127.0.0.1", "127.0.0.2"]
    with socket.create_server((addresses[0], 0)) as server:
        sockets = GroupSockets(addresses, _STORE)
        ends: list[socket.socket] = []
        sockets.pass_by()
        try:
            for _ in range(1 + twice):
                end = socket.create_connection(
                    server.getsockname(), source_address=(addresses[1], 0)
                )
                ends.extend((end, server.accept()[0]))
            assert len([*sockets.lines("default", [0, 1], 0)]) == (0 if twice else 2)
        finally:
            for end in ends:
                end.close()

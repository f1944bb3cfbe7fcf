"""MPTCP on this machine's own kernel: the library that turns sockets, and further subflows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.linux.mptcp import SYSCTLS
from emulator.linux.namespaces import enter
from emulator.ranks.launcher import Launcher
from emulator.transports import EMULATED_TRANSPORTS, emulated
from tests.native.native_fabrics import flat, network
from topologies.spec.spec import Spec, parse_spec

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to make network namespaces"),
    pytest.mark.skipif(not SYSCTLS.is_dir(), reason="this kernel has no MPTCP (CONFIG_MPTCP)"),
]

_SERVER = """
import socket
with socket.create_server(("", 7000)) as listener:
    print("listens", flush=True)
    end, _ = listener.accept()
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    while end.recv(65536):
        end.sendall(b"x")
"""
_CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000)) as end:
    assert end.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_MPTCP
    for _ in range(2):
        end.sendall(b"x")
        end.recv(1)
    print("connected", flush=True)
    sys.stdin.read()
"""


def _spec(subflows: int) -> Spec:
    return parse_spec(
        f"""
name: mptcp
fabric: {{kind: flat, hosts: 2}}
transport: {{kind: mptcp, subflows: {subflows}}}
workload: {{kind: collectives, ranks: 2, operations: [{{kind: barrier}}]}}
"""
    )


def _wait_for(what: Callable[[], bool]) -> None:
    while not what():  # the test's own time limit ends it
        time.sleep(0.01)


def test_connections_have_as_many_subflows_as_asked_for() -> None:
    spec = _spec(4)
    (library,) = emulated(spec).preloaded_natively(spec)
    fabric = flat(2)
    with network(fabric, set_up=emulated(spec).set_up(spec)) as live:

        def start(host: str, program: str, *arguments: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env={**os.environ, "LD_PRELOAD": str(library)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: enter(live.netns_path(host)),
            )

        manager = live.path_manager
        assert manager is not None
        with start("h1", _SERVER) as server:
            assert server.stdout is not None and server.stdout.readline() == "listens\n"
            with start("h0", _CLIENT, str(fabric.by_name["h1"].address)) as client:
                assert client.stdout is not None and client.stdout.readline() == "connected\n"
                _wait_for(lambda: manager.counts.subflows >= 3)
                assert (manager.counts.connections, manager.counts.refused) == (1, 0)
        ends = {(one.host, one.peer, one.peer_port) for one in manager.subflows}
        assert ends == {("h0", "h1", 7000)}
        ports = {one.port for one in manager.subflows} | {manager.subflows[0].first_port}
        assert len(ports) == 4


def test_a_server_of_ranks_has_the_library() -> None:
    spec = _spec(2)
    (library,) = EMULATED_TRANSPORTS["mptcp"].preloaded_natively(spec)
    with Launcher(with_torch=False, preload=(library,)) as launcher:
        launcher.wait_until_prepared()
        assert str(library) in Path(f"/proc/{launcher._pid}/maps").read_text()

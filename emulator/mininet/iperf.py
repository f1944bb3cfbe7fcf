"""iperf between two nodes.

Stock Mininet's own test waits for a report of the telnet connection by which it found the server
listening; iperf 2.1 prints none, and the test never ends. This one looks for the listening socket
and reads iperf's CSV.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from emulator.mininet.nodes import FabricNode
from emulator.network.network import Network

_LISTEN_DEADLINE_S = 10.0
_PATIENCE_S = 120
_TCP_LISTEN, _UDP_UNCONNECTED = "0A", "07"
_BPS_FIELD = 8
_UNITS = ((10**9, "Gbits/sec"), (10**6, "Mbits/sec"), (10**3, "Kbits/sec"), (1, "bits/sec"))


ENOUGH_BYTES = 250_000_000
"""A TCP test ends here at the latest. Five seconds at 100 Gb/s would be 60 GB through a kernel that
may need minutes for them; the rate is the same."""


class IperfFailed(RuntimeError):
    """iperf did not give a figure; the message has its own words."""


def measure(
    network: Network,
    client: FabricNode,
    server: FabricNode,
    udp_bandwidth: str | None,
    seconds: int,
    port: int,
) -> tuple[str, str]:
    """The rates that the server received and the client sent, as iperf words rates.

    `udp_bandwidth` None measures TCP. Raises IperfFailed.
    """
    common = ["iperf", "-y", "C", "-p", str(port), *(["-u"] if udp_bandwidth else [])]
    amount = ["-t", str(seconds)]
    if udp_bandwidth:
        amount += ["-b", udp_bandwidth]
    elif _slowest_bps(network, client, server) * seconds > 8 * ENOUGH_BYTES:
        amount = ["-n", str(ENOUGH_BYTES)]
    listener = server.popen([*common, "-s"], text=True)
    try:
        _await_listening(network, server, port, udp=udp_bandwidth is not None)
        sender = client.popen([*common, "-c", server.IP(), *amount], text=True)
        try:
            sent, said = sender.communicate(timeout=seconds + _PATIENCE_S)
        except subprocess.TimeoutExpired:
            sender.kill()
            raise IperfFailed(f"iperf on {client.name} did not end") from None
        received = _first_line(listener)
    finally:
        listener.terminate()
        listener.wait()
    # A UDP client prints its own line, then what the server told it.
    return _rate(received, said), _rate(sent.partition("\n")[0], said)


def _slowest_bps(network: Network, *nodes: FabricNode) -> int:
    links = (link for node in nodes for link in network.fabric.links_of[node.name])
    return min(link.rate_bps for link in links)


def _await_listening(network: Network, node: FabricNode, port: int, udp: bool) -> None:
    table, state = ("udp", _UDP_UNCONNECTED) if udp else ("tcp", _TCP_LISTEN)
    pattern = re.compile(rf":{port:04X} [0-9A-F]+:0000 {state} ")
    deadline = time.monotonic() + _LISTEN_DEADLINE_S
    while time.monotonic() < deadline:
        with network.enter(node.name):
            if pattern.search(Path(f"/proc/thread-self/net/{table}").read_text()):
                return
        time.sleep(0.01)
    raise IperfFailed(f"iperf on {node.name} does not listen on port {port}")


def _first_line(listener: subprocess.Popen[str]) -> str:
    assert listener.stdout is not None
    return listener.stdout.readline()


def _rate(line: str, said: str) -> str:
    fields = line.strip().split(",")
    if len(fields) <= _BPS_FIELD or not fields[_BPS_FIELD].isdigit():
        raise IperfFailed(f"iperf gave no figure: {said.strip() or line.strip() or 'no output'}")
    bps = int(fields[_BPS_FIELD])
    factor, unit = next((f, u) for f, u in _UNITS if bps >= f or f == 1)
    return f"{bps / factor:.3g} {unit}"

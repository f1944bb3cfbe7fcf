"""The packet engine beside ns-3 and csg-htsim, on the same fabric and flows, in one run.

    .venv/bin/python -m benchmarks.peers --htsim PROGRAM   # htsim_roce of Broadcom/csg-htsim
    .venv/bin/python -m benchmarks.peers --ns3             # needs the extra ns3

A permutation on a fat-tree, MTU 1500, 100 Gb/s, 1 us a link: each host sends to the one half the
hosts on. Beside htsim over RoCE without control, lossless, with an acknowledgement for each packet;
beside ns-3 over TCP with CUBIC. All figures are processor seconds, the least of the rounds. htsim's
are those of its process less those of the same flows with one packet each, which are its set-up.
Its hops are counted from the flows, as each packet and its acknowledgement pass the ports of its
way; the engine counts its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

import groundwire
from analysis.predict.models.ns3 import Ns3
from analysis.predict.models.packet import Packet
from analysis.predict.setting import setting_of_spec
from topologies.spec.spec import parse_spec
from workloads.models.planned import planned_calls

_SIZES = {16: (4, 8_000_000), 128: (8, 4_000_000), 1024: (16, 1_000_000)}
"""By hosts: k of the fat-tree, and the bytes that a host sends."""

_PACKET_BYTES, _HOPS = 1500, 6
"""A packet of htsim, whose flows cross the core."""


_PERMUTATION = """
  operations: [{{kind: permutation, size: {size}B, shift: {shift}}}]
"""
_PROGRAMS = """
  operations: [{kind: broadcast, size: 1KB}]
collectives: {backend: programs, broadcast: {algorithm: tree}}
"""


def _spec(hosts: int, transport: str, queue: str, rest: str) -> str:
    k, _ = _SIZES[hosts]
    return f"""
name: permutation
fabric:
  kind: fat-tree
  k: {k}
  link: {{rate: 100Gbps, delay: 1us, mtu: 1500}}
  queue: {queue}
transport: {transport}
workload:
  kind: collectives
  ranks: {hosts}{rest}"""


def roce_s(hosts: int) -> tuple[float, int]:
    """The engine's processor seconds and hops of a permutation over RoCE."""
    transport = "{kind: roce, congestion_control: none, ack_every: 1}"
    spec = parse_spec(_spec(hosts, transport, "{kind: lossless}", _PROGRAMS))
    pairs = [(rank, (rank + hosts // 2) % hosts) for rank in range(hosts)]
    size = _SIZES[hosts][1]
    with groundwire.drive(spec, pairs=pairs) as network:
        for source, destination in pairs:
            network.send(source, destination, size)
            network.receive(source, destination, size)
        network.run()
        found = network.finish()
    return found.processor_s, found.hops


def htsim_s(program: Path, hosts: int, size_bytes: int) -> float:
    """The processor seconds of htsim's process. Raises SystemExit where a flow does not end."""
    flows = [f"Nodes {hosts}", f"Connections {hosts}"]
    for host in range(hosts):
        there = (host + hosts // 2) % hosts
        flows.append(f"{host}->{there} id {host + 1} start 0 size {size_bytes}")
    before = _of_children_s()
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder) / "flows.cm"
        matrix.write_text("\n".join(flows) + "\n")
        options = f"-nodes {hosts} -linkspeed 100000 -mtu {_PACKET_BYTES} -hop_latency 1"
        options += " -strat ecmp_host -paths 1 -q 100 -pfc_thresholds 70 80 -end 100000"
        done = subprocess.run(
            [program.resolve(), *options.split(), "-tm", matrix, "-o", Path(folder) / "log"],
            capture_output=True,
            text=True,
            check=True,
        )
    if done.stdout.count(" finished at ") != hosts:
        raise SystemExit(f"htsim: found {done.stdout.count(' finished at ')} flows, not {hosts}")
    return _of_children_s() - before


def _of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def htsim_table(program: Path, largest: int, rounds: int) -> Table:
    """A row for each size of fabric."""
    table = Table("hosts", title="csg-htsim and the engine, RoCE")
    for name in ("htsim s", "hops", "us a hop", "engine s", "hops", "us a hop", "by hops", "by s"):
        table.add_column(name, justify="right")
    for hosts in (each for each in _SIZES if each <= largest):
        size = _SIZES[hosts][1]
        pairs = []
        for _ in range(rounds):
            peer = htsim_s(program, hosts, size) - htsim_s(program, hosts, 1)
            pairs.append((peer, roce_s(hosts)))
        peer_s = min(each for each, _ in pairs)
        own_s, own_hops = min(each for _, each in pairs)
        peer_hops = 2 * _HOPS * hosts * -(-size // _PACKET_BYTES)
        peer_us, own_us = 1e6 * peer_s / peer_hops, 1e6 * own_s / own_hops
        cells = (f"{peer_s:.2f}", f"{peer_hops:,}", f"{peer_us:.3f}", f"{own_s:.2f}")
        ratios = (f"{peer_us / own_us:.1f}", f"{peer_s / own_s:.1f}")
        table.add_row(f"{hosts:,}", *cells, f"{own_hops:,}", f"{own_us:.3f}", *ratios)
    return table


def ns3_table(largest: int, rounds: int) -> Table:
    """A row for each size of fabric."""
    table = Table("hosts", title="ns-3 and the engine, TCP")
    for name in ("ns-3 s", "its time ns", "engine s", "its time ns", "ratio"):
        table.add_column(name, justify="right")
    for hosts in (each for each in _SIZES if each <= largest):
        flows = _PERMUTATION.format(size=_SIZES[hosts][1], shift=hosts // 2)
        transport = "{congestion_control: cubic}"
        spec = parse_spec(_spec(hosts, transport, "{kind: droptail}", flows))
        setting, (planned,) = setting_of_spec(spec), planned_calls(spec)
        seconds = []
        for _ in range(rounds):
            ns3, packet = Ns3(timeout_s=3600), Packet()
            theirs, ours = (each.predict(setting, planned.call) for each in (ns3, packet))
            assert packet.last is not None
            seconds.append((ns3.last_run["processor_s"], packet.last.processor_s))
        peer_s, own_s = (min(column) for column in zip(*seconds, strict=True))
        row = (f"{peer_s:.2f}", f"{theirs:,}", f"{own_s:.2f}", f"{ours:,.0f}")
        table.add_row(f"{hosts:,}", *row, f"{peer_s / own_s:.1f}")
    return table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--htsim", type=Path)
    parser.add_argument("--ns3", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--largest", type=int, default=1024)
    arguments = parser.parse_args()
    if arguments.htsim is not None:
        Console(width=100).print(htsim_table(arguments.htsim, arguments.largest, arguments.rounds))
    if arguments.ns3:
        Console(width=100).print(ns3_table(arguments.largest, arguments.rounds))


if __name__ == "__main__":
    main()

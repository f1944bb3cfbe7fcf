"""The fabric that a shell is opened on: a spec's fabric, or a Topo's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emulator.mininet.net import FabricMininet
from emulator.mininet.topology import fabric_of_topo, load_topo
from emulator.network.network import NetworkOptions
from emulator.network.sysctls import TcpSettings
from emulator.ports.arrangement import PortArrangement
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.spec.spec import load_spec


@dataclass(frozen=True)
class ShellSource:
    """A fabric, and how its hosts run TCP."""

    fabric: Fabric
    transport: TcpSettings
    seed: int


def fabric_of(spec: str | None, topo: str | None, custom: str | None) -> ShellSource:
    """The fabric of a spec file, or of a Topo's name. Raises SpecError and TopoError."""
    if spec is None:
        made = load_topo(topo or "minimal", custom)
        return ShellSource(fabric_of_topo(made), TcpSettings(), seed=1)
    loaded = load_spec(spec)
    transport = TcpSettings(
        loaded.tcp.congestion_control,
        loaded.tcp.rcvbuf_bytes,
        loaded.tcp.sndbuf_bytes,
        loaded.ecn,
        loaded.tcp.min_rto_ns,
        loaded.tcp.initial_window,
    )
    return ShellSource(build_fabric(loaded.fabric), transport, loaded.seed)


def open_net(
    source: ShellSource, arrangement: Callable[[Fabric], PortArrangement]
) -> FabricMininet:
    """The fabric, up, as a Mininet. Raises what Network.up raises."""
    options = NetworkOptions(
        arrangement=arrangement(source.fabric), transport=source.transport, hash_seed=source.seed
    )
    return FabricMininet(fabric=source.fabric, options=options)

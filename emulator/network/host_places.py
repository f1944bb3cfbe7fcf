"""A node's namespace as a host for programs: what they find there, and share with no other host."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from emulator.linux.namespaces import HostPlace
from emulator.network.network import Network
from topologies.fabrics.fabric import Fabric


def make_host_places(
    network: Network, nodes: Iterable[str], directory: Path, *, own_temporary: bool
) -> dict[str, HostPlace]:
    """The places of these nodes of a network that is up. Their files are in `directory`, which is
    made; their shared memory goes with the network. Raises OSError.

    Every node is found by name, itself first, and there is no name server, which the fabric does
    not have and for whose answer programs would wait. UCX takes processes with one shared memory
    for two of one machine, and would send nothing over the fabric: each host has its own. The boot
    id is the machine's, as JAX takes hosts of different ones for slices, and makes no mesh of them.

    With `own_temporary` each host has its own /tmp, too: programs keep the state of a machine there
    (Ray its node, servers their sockets). On a machine's own kernel /tmp is its user's.
    """
    directory.mkdir()
    servers = directory / "resolv.conf"
    servers.write_text("")
    places = {}
    for node in nodes:
        ipc, memory = network.shared_memory(node)
        covers = {
            Path("/etc/hosts"): _write_hosts(network.fabric, node, directory / node),
            Path("/etc/resolv.conf"): servers,
            Path("/dev/shm"): memory,
        }
        if own_temporary:
            covers[Path("/tmp")] = network.temporary(node)
        places[node] = HostPlace(network.netns_path(node), ipc, covers)
    return places


def _write_hosts(fabric: Fabric, node: str, path: Path) -> Path:
    """Addresses of IPv4 that are mapped to IPv6 have a name, as torch looks for one, but no host
    has them: who asks for a host's address is to get one of IPv4."""
    own_first = sorted(fabric.nodes, key=lambda each: each.name != node)
    lines = [f"{n.address} {n.name}\n::ffff:{n.address} {n.name}.mapped\n" for n in own_first]
    path.write_text("127.0.0.1 localhost\n" + "".join(lines))
    return path

"""A node's namespace as a host for programs: the files in which they look up names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from topologies.fabrics.fabric import Fabric

Covers = Mapping[Path, Path]
"""Path -> the file that a program is to see there."""


def write_host_names(fabric: Fabric, nodes: Iterable[str], directory: Path) -> dict[str, Covers]:
    """Files of names for each of these nodes, written into `directory`, which is made: every node
    by name, itself first, and no name server, which the fabric does not have and for whose answer
    programs would wait. Raises OSError."""
    directory.mkdir()
    servers = directory / "resolv.conf"
    servers.write_text("")
    return {
        node: {
            Path("/etc/hosts"): _write_hosts(fabric, node, directory / node),
            Path("/etc/resolv.conf"): servers,
        }
        for node in nodes
    }


def _write_hosts(fabric: Fabric, node: str, path: Path) -> Path:
    """Addresses of IPv4 that are mapped to IPv6 have a name, as torch looks for one, but no host
    has them: who asks for a host's address is to get one of IPv4."""
    own_first = sorted(fabric.nodes, key=lambda each: each.name != node)
    lines = [f"{n.address} {n.name}\n::ffff:{n.address} {n.name}.mapped\n" for n in own_first]
    path.write_text("127.0.0.1 localhost\n" + "".join(lines))
    return path

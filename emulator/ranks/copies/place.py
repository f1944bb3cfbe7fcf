"""The places of participants' copies in a run."""

from __future__ import annotations

from pathlib import Path

from emulator.network.network import Network
from emulator.ranks.gate import Seat
from topologies.fabrics.copies import CopyPaths
from workloads.execution.copies.place import CopiesPlace

COPIES_FILE = "copies.jsonl"
"""In a run directory: each copy, in the order of their ends (docs/formats.md)."""

_SOCKET = "copies"


def socket_of(network: Network) -> Path:
    """The socket at which the ends of copies are posted."""
    assert network.session is not None
    return network.session.directory / _SOCKET


def copies_place(network: Network, node: str, seat: Seat | None) -> CopiesPlace | None:
    """That of a rank on a host, or of a switch that takes part, of the job of this seat; None where
    nothing is copied."""
    paths = CopyPaths.of(network.fabric)
    if paths is None:
        return None
    prefix = "" if seat is None else f"{seat.job}/"
    return CopiesPlace(socket_of(network), paths, node, prefix)

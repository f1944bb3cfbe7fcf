"""The place at which a participant finds what its copies need."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from topologies.fabrics.copies import CopyPaths

POST = struct.Struct("!?iiQQQIQ")
"""An end of a message that is posted: whether it is the sender's, the directed links out of the
sender and into the receiver, its bytes, where they lie in memory, when it was posted (ns), its
number at the rank, and its slot; then the name of the connection. All ends of a message have the
same name and slot."""

OVER = struct.Struct("!I")
"""The number of a message that is complete; a datagram has one or more."""

MOST_OVER = 1024
"""The most of them in a datagram."""


@dataclass(frozen=True, slots=True)
class CopiesPlace:
    """`socket` is where ends are posted. `node` is the participant's host or switch. Groups of
    several jobs have its name as their `prefix`."""

    socket: Path
    paths: CopyPaths
    node: str
    prefix: str = ""

    def copies_to(self, nodes: Sequence[str]) -> bool:
        """Whether a message to one of these hosts or switches is a copy."""
        return any(self.paths.between(self.node, node) is not None for node in nodes)

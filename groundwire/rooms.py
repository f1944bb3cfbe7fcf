"""The top-level packages of Groundwire, one a room (docs/architecture.md)."""

from __future__ import annotations

ROOMS = (
    "groundwire",
    "emulator",
    "analysis",
    "simulation",
    "workloads",
    "collectives",
    "topologies",
)

"""The largest traces that are read. Beyond these a file is broken, or no machine has the room."""

from __future__ import annotations

MOST_RANKS = 1 << 20
MOST_NODES = 4_000_000
"""Nodes of all ranks, where a reader makes them of a few lines."""

LONGEST_NS = 24 * 3600 * 10**9
"""The longest computation of a node. A day in which nothing runs takes minutes to pass."""

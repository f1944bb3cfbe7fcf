"""Searching the design of a cluster by models: bandwidths, strategies and resources.

It runs nothing: `groundwire/designs` has its best point confirmed by the emulator. Three names to
know: `search`, `Solution` (a point with its bandwidths) and `Found` (all of them).
"""

"""Aggregation nodes: the switches' part of collectives, and how ranks reach them.

It chooses no tree: `collectives/in_network` does. Three names to know: `AggregationClient` (a
rank's end), `run_node` (a switch's) and `Rescue` (when a node dies).
"""

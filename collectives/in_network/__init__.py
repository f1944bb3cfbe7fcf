"""Switches that take part in collectives: their nodes, and the tree of a run.

It computes no sums: `workloads/execution/aggregation` does. Three names to know: `Aggregator` (a
switch that takes part), `AskedTree` and `aggregation_of_run`.
"""

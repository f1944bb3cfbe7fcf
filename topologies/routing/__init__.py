"""Routes of a fabric: next hops, kernel tables, and which of them ECMP's hash takes.

The hash is Linux's own, computed here bit for bit, so that predictors know a flow's path. Three
names to know: `Routes`, `compute_routes` and `flow_path`.
"""

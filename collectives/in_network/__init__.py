"""Switches that take part in collectives: their nodes, and the tree of a run."""

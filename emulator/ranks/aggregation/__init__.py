"""Processes of aggregation nodes, in the namespaces of switches."""

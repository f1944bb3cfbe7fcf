"""Aggregation nodes: the switches' part of collectives, and how ranks reach them."""

"""Fabrics: nodes, ports and links as immutable data, a builder per kind, and placement on them."""

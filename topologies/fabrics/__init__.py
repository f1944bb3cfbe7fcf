"""Fabrics: nodes, ports and links as immutable data, a builder per kind, and placement on them.

Nothing here runs. Three names to know: `Fabric`, `Link` and `build_fabric`, which takes the section
of a spec.
"""

"""Mininet on our fabrics: its nodes, its CLI and its Topo API; our namespaces, links and routes."""

"""Designs from their file to their directory, and their confirmation by emulation."""

"""Designs from their file to their directory, and their confirmation by emulation.

It searches nothing itself: `analysis/design` does. Three names to know: `design`, `confirm` and
`Emulation` (a point as a spec).
"""

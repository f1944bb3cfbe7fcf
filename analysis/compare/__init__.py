"""Measured against predicted: errors, and what a gap is made of (docs/comparing.md).

It reads runs that are done, and judges none. Three names to know: `compare`, `Decomposition` (the
parts of one gap) and `CollectiveErrors`.
"""

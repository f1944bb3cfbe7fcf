"""Measured against predicted: errors, and what a gap is made of (docs/comparing.md)."""

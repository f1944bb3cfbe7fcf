"""Measured against predicted: errors, and what a gap is made of (docs/prediction.md)."""

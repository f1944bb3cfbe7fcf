"""The figures of a design."""

"""Drawings of runs whose switches take part in collectives."""

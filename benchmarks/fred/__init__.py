"""FRED's fabrics beside a mesh (Rashidi et al., ISCA 2025): collectives, weights that are streamed
in from the edge, and training. `python -m benchmarks.fred` makes the tables."""

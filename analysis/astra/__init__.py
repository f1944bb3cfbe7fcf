"""ASTRA-sim 2.x's analytical backends and system layer: the same files in, the same cycles out."""

"""ASTRA-sim's analytical network backends and the memory bus."""

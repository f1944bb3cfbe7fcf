"""Searching the design of a cluster by models: bandwidths, strategies and resources."""

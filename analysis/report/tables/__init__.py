"""A run as tables with units: the start of every output."""

"""TCP in a spec."""

"""The command for designs, and what it shows."""

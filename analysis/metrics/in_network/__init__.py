"""Switches that take part in collectives: what they save, and how they are used."""

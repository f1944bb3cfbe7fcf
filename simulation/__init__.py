"""Simulators: the compiled packet engine, which is a process of its own, and what it is told."""

"""Simulators: the compiled packet engine, which is a process of its own, and what it is told.

The engine follows every segment of Linux's TCP in integer nanoseconds (`engine/`, C++, GPL-2.0). It
knows no spec and no collective: it reads ports, connections and programs as columns, and writes a
timeline. It can be driven from outside, too. Three names to know: `run_engine`, `DrivenEngine` and
`Column`.
"""

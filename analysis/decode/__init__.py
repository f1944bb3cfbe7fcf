"""Captures decoded: the collective, message and step that every byte on the wire belongs to.

`tcp/` puts streams together, `gloo/`, `mpi/` and `roce/` read messages, `byte_ledger.py` counts. A
byte that belongs to nothing is counted as such, never dropped. Three names to know: `attribute`,
`RunCapture` (a run's captures, read) and `Ledger` (bytes by message and purpose).
"""

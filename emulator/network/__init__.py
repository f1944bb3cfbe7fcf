"""A fabric in the kernel at hand: up, impaired, and down.

Each object is recorded before it is made (`registry.py`) and taken down, also after a crash. It
starts no rank. Three names to know: `Network`, `Blueprint` (the requests that make a fabric,
computed before any is sent) and `Session` (all that was made, on disk).
"""

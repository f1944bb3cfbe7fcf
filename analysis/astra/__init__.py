"""ASTRA-sim 2.x's analytical backends and system layer: the same files in, the same cycles out.

It is a port, held to the original's cycles by tests, and no model of ours. Three names to know:
`Simulation`, `System` and `Mailbox`.
"""

"""The native kernel: this machine's own, in real time.

It chooses by how much a run is slowed down (`scaling.py`), so that the machine keeps up. Whether it
did is judged in `fidelity`. Three names to know: `missing_for`, `native_arrangement` and
`ScaleChoice`.
"""

"""Published measurements of hardware, held against what this project says of the same.

`nccl.csv`, `gloo.csv` and `training.csv` have the measurements as facts, each with its source.
`predictions.py`, `simulations.py`, `gloo.py` and `training.py` keep what is predicted in
benchmarks/results; `page.py` makes docs/hardware.md and the pages of its rows of both.
"""

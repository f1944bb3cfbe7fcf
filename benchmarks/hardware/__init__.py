"""Published measurements of hardware, held against what this project says of the same.

`nccl.csv` has the measurements as facts, each with its source. `predictions.py` prices them and
keeps the result in benchmarks/results; `page.py` makes docs/hardware.md of both.
"""

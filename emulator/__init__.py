"""Fabrics made real: kernels, links, queues, ranks and captures. The only code that needs root.

A spec goes in and a run directory comes out, without result.json, which analysis writes; neither
imports the other. Three names to know: `run_session` (a spec to a kernel, `session.py`),
`run_experiment` (the run inside that kernel, `experiment.py`) and `Network` (a fabric that is up,
`network/network.py`).
"""

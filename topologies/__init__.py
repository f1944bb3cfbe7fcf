"""A fabric and an experiment as data: the spec's language, builders, routes, placement.

It is the lowest room. It knows no collective, no kernel and no run: a spec is checked and resolved
here, and a fabric is nodes, ports and links. Three names to know: `Spec` (a checked file,
`spec/spec.py`), `Fabric` (`fabrics/fabric.py`) and `Plan` (a spec's fabric, routes and the host of
each rank, `plan.py`).
"""

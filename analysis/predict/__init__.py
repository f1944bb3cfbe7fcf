"""Predictions: a scenario in, a timeline out; each predictor says what it ignores.

`Simulator.run` is the only door. Scenarios are made of a spec (`planned_run`), of a run's
collectives (`run_predictions`) or of one collective. Predictors are in `models/`, and what they
compute with in `engines/`; the packet engine itself is `simulation`. Measured values are not here,
only the times at which a run posted. Three names to know: `Scenario` (collectives, and what each
rank does), `Simulator`, and `Adapted` (any predictor as a simulator).
"""

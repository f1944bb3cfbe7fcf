"""Predictions: a setting and collectives in, durations out; each predictor says what it ignores.

Predictors are in `models/`, and what they compute with in `engines/`; the packet engine itself is
`simulation`. Measured values are not here, only the times at which a run posted. Three names to
know: `Predictor`, `Setting` (where collectives run) and `JointPrograms` (collectives in flight
together, compiled for engines).
"""

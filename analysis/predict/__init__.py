"""Predictions: fabric and collective in, duration out; each predictor says what it ignores."""

import analysis.predict.interface  # noqa: F401  (registers what this room checks of a spec)

"""Predictions: fabric and collective in, duration out; each predictor says what it ignores."""

"""Predictors: fabric and collective in, duration out; each says what it ignores."""

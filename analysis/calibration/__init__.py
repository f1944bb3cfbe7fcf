"""Fits predictors' parameters to runs, and says how far to trust the fit (docs/comparing.md)."""

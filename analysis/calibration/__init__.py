"""Fits predictors' parameters to runs, and says how far to trust the fit (docs/comparing.md).

It makes no prediction of its own, and changes no predictor: a file of parameters comes out. Three
names to know: `calibrate`, `Calibration` (that file) and `Split` (the runs that are held out).
"""

"""Studies: the cases of an experiment with many factors, checked, and run by Dask.

It judges no case: `analysis/studies` does. Three names to know: `study`, `StudyPlan` (the cases
before any runs) and `DaskEngine`.
"""

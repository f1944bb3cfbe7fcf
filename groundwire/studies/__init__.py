"""Studies: the cases of an experiment with many factors, checked, and run by Dask."""

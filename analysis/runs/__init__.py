"""A run directory as typed values: records of ranks, collectives, ports, samples.

It reads files and computes no figure beyond what a record says; it imports no predictor. Three
names to know: `Run` (`load_run` reads one), `MeasuredCollective` and `LinkRecord`.
"""

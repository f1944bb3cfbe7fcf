"""The `aggregation` section of a spec: switches that compute."""

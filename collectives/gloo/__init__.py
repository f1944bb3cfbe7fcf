"""Gloo's own algorithms: which messages each collective sends."""

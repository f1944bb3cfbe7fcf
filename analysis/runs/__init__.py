"""A run directory, read: records, collectives, the result and the verdict."""

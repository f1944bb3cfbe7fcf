"""The collectives that XLA compiled, from its dumps: the names of collectives that are found in
captures."""

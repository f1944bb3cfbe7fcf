"""The `design` section of a spec: the search's space, its constraints, and its objective."""

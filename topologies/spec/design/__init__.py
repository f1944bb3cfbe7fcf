"""The `design` section of a spec: what is searched, under which constraints, for what."""

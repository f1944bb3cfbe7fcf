"""The virtual kernel's build: source, patches, cache."""

"""The demands of a guest on its host: cores, limits, processor features."""

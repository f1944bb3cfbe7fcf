"""What a guest asks of its host: cores, limits, processor features."""

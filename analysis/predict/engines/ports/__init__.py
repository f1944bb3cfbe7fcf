"""What decides what a port holds and sends next."""

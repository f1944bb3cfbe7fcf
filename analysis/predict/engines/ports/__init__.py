"""The rules by which a port holds and sends messages."""

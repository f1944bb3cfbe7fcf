"""What decides how fast a sender goes."""

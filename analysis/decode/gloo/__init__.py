"""Gloo's messages in TCP streams: format, messages, and which collective each belongs to."""

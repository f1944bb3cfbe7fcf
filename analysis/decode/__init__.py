"""Captures decoded: which collective every byte on the wire belongs to."""

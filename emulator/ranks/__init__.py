"""Ranks: started, watched, ended."""

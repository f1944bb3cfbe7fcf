"""result.json: the figures of a run, their verdict with all its reasons, and what is noted.

It reads a run directory (`analysis.runs`) and holds predictions beside it (`analysis.predict`).
"""

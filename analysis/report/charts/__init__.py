"""The drawings of a report, one kind a file, and what they are drawn with.

They compute no figure. Three names to know: `Drawing`, `Scale` and `Layout` (places of a fabric's
nodes).
"""

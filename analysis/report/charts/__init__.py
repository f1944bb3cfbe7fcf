"""The drawings of a report, one kind a file, and what they are drawn with."""

"""Classroom labs: folders of data in `labs/`, what students make of them, and how it is graded.

It knows no lab by name. Three names to know: `Lab`, `LabFolder` (a student's) and `grade`.
"""

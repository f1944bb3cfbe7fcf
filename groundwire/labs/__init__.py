"""Classroom labs: folders of data in `labs/`, what students make of them, and how it is graded."""

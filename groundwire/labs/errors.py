"""Errors of labs, of students' folders and of machines that grade."""

from __future__ import annotations


class LabError(ValueError):
    """A lab or a student's folder is not as it must be: the file, the key, found, allowed."""


class NoSandbox(RuntimeError):
    """This machine cannot keep foreign code in; nothing of it is run."""

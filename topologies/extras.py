"""Extras of the package: what an installation may lack, and the line that adds it."""

from __future__ import annotations

import sys


def install_line(extra: str) -> str:
    """The command that installs an extra of pyproject.toml beside what is there, for messages. pip
    takes the extra from the installed package, of a clone or of a wheel, and asks no index for it.
    """
    return f"{sys.executable} -m pip install 'groundwire[{extra}]'"

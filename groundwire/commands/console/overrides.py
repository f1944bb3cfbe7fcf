"""`--set KEY=VALUE` as a mapping."""

from __future__ import annotations

from collections.abc import Sequence

import typer


def parse_overrides(texts: Sequence[str]) -> dict[str, str]:
    """`["fabric.k=8"]` -> `{"fabric.k": "8"}`. Raises typer.BadParameter."""
    overrides = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f"found {text!r}, expected KEY=VALUE such as fabric.k=8")
        overrides[key] = value
    return overrides

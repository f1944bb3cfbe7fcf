"""`--external FORMAT=FILE`: what other simulators' results are called, and where they are."""

from __future__ import annotations

from collections.abc import Sequence

import typer


def external_sources(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """The name of each `--external` -> format and path. Raises typer.BadParameter."""
    split = [(text, *text.partition("=")) for text in texts]
    formats = [format_ for _, format_, _, _ in split]
    found = {}
    for text, format_, _, path in split:
        if not path:
            raise typer.BadParameter(
                f"--external: found {text!r}, expected FORMAT=FILE such as csv=times.csv"
            )
        name = format_ if formats.count(format_) == 1 else text
        found[name] = {"format": format_, "path": path}
    return found

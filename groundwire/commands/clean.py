"""`groundwire clean`: what killed sessions left behind goes away, and nothing else."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from emulator.network.registry import Removal, sessions


def clean(
    session: Annotated[
        str | None,
        typer.Option(metavar="ID", help="This session, even when its process still runs."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Remove what killed sessions left behind: namespaces, links, processes, files.

    Only objects recorded in a session's registry are removed, and only while they are still the
    ones recorded. Sessions whose process runs are left alone. Exit code 1 when something could not
    be removed.
    """
    found = sessions()
    if session is not None and session not in {s.id for s in found}:
        ids = ", ".join(s.id for s in found) or "none"
        print(f"error: there is no session {session}; there are: {ids}", file=sys.stderr)
        return 2
    chosen = [s for s in found if s.id == session or (session is None and not s.alive())]
    living = [s.id for s in found if s not in chosen]
    removals = {s.id: s.remove() for s in chosen}
    if as_json:
        shown = {
            name: {"removed": list(r.removed), "left": list(r.left)} for name, r in removals.items()
        }
        print(json.dumps({"sessions": shown, "living": living}))
    else:
        _print(removals, living)
    return 1 if any(r.left for r in removals.values()) else 0


def _print(removals: dict[str, Removal], living: list[str]) -> None:
    for name, removal in removals.items():
        print(f"session {name}: {len(removal.removed)} objects removed")
        for text in removal.left:
            print(f"  could not remove {text}", file=sys.stderr)
    if living:
        print(f"left alone, as their processes run: {', '.join(living)}")
    if not removals:
        print("nothing to clean up")
        if os.geteuid() != 0:
            print("(as root, `groundwire clean` also looks at root's sessions)", file=sys.stderr)

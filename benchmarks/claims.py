"""Runs the commands that docs/claims.md has for the claims of the literature.

    .venv/bin/python -m benchmarks.claims [--list] [--only NAME ...] [--out DIR]

Claims with the same command are tested by one run of it. What each prints is kept in DIR, a file
per command, and so is what it makes where it names no other place; those that keep their runs go on
where they were. The verdicts are the page's: a figure that changed is for a person to judge.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "claims.md"
COLUMNS = ("name", "claim", "source", "command", "here", "verdict")
VERDICTS = ("holds", "does not hold", "under conditions", "not tested")


class ClaimsError(Exception):
    """The page of claims is not as it has to be."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of the page. `command` has the words to run; none where nothing can be run."""

    name: str
    claim: str
    source: str
    command: tuple[str, ...]
    here: str
    verdict: str


def read_claims(text: str) -> list[Claim]:
    """The rows of the page's table. Raises ClaimsError with what is wrong, and where."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    if len(rows) < 3 or tuple(rows[0]) != COLUMNS:
        raise ClaimsError(f"a table with the columns {', '.join(COLUMNS)} expected")
    claims: dict[str, Claim] = {}
    for cells in rows[2:]:
        if len(cells) != len(COLUMNS) or not all(cells):
            raise ClaimsError(f"{cells[0]}: {len(COLUMNS)} cells with text expected, found {cells}")
        name, claim, source, command, here, verdict = cells
        if name in claims:
            raise ClaimsError(f"{name}: this name is there twice")
        if verdict not in VERDICTS:
            raise ClaimsError(f"{name}: found {verdict!r}, allowed are {', '.join(VERDICTS)}")
        words = () if command == "none" else tuple(shlex.split(command.strip("`")))
        claims[name] = Claim(name, claim, source, words, here, verdict)
    return list(claims.values())


def _executable(words: Sequence[str]) -> list[str]:
    """With this environment's programs."""
    first, *rest = words
    own = Path(sys.executable).parent / first
    return [str(own) if own.exists() else first, *rest]


def _run(claims: Sequence[Claim], out: Path) -> list[str]:
    """Run each command once; returns those that failed. Prints what begins and ends."""
    commands: dict[tuple[str, ...], list[str]] = {}
    for claim in claims:
        if claim.command:
            commands.setdefault(claim.command, []).append(claim.name)
    out.mkdir(parents=True, exist_ok=True)
    failed = []
    for place, (words, names) in enumerate(commands.items(), 1):
        print(f"{place} of {len(commands)}  {shlex.join(words)}  ({', '.join(names)})", flush=True)
        log, began = out / f"{names[0]}.txt", time.monotonic()
        with log.open("w") as said:
            done = subprocess.run(
                _executable(words), cwd=ROOT, stdout=said, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode != 0:
            failed.append(shlex.join(words))
        end = "done" if done.returncode == 0 else f"failed ({done.returncode})"
        print(f"    {end} after {time.monotonic() - began:,.0f} s: {log}", flush=True)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a command failed, 2 if nothing could be run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print names and verdicts, run nothing")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="claims whose name begins so; repeatable"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "claims", metavar="DIR")
    options = parser.parse_args(arguments)
    claims = read_claims(PAGE.read_text())
    chosen = [
        claim
        for claim in claims
        if not options.only or any(claim.name.startswith(start) for start in options.only)
    ]
    if not chosen:
        known = ", ".join(claim.name for claim in claims)
        print(f"error: --only: found {options.only}, allowed are {known}", file=sys.stderr)
        return 2
    if options.list:
        for claim in chosen:
            print(f"{claim.name:20} {claim.verdict:17} {shlex.join(claim.command) or '-'}")
        return 0
    failed = _run(chosen, options.out)
    for command in failed:
        print(f"failed: {command}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

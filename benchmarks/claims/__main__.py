"""Runs the experiments behind docs/claims.md, keeps their figures, and makes the page of them.

    .venv/bin/python -m benchmarks.claims [--only NAME ...] [--cheap] [--runs DIR]
    .venv/bin/python -m benchmarks.claims --list | --page

An experiment's file in benchmarks/results/claims/ is written anew; runs are kept in DIR, and are
not run again where they are complete. NAME is the beginning of an experiment's or a claim's name.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims.experiment import ROOT, Experiment
from benchmarks.claims.page import PAGE, render, row
from benchmarks.claims.sources import CLAIMS, PARTS


def experiments() -> list[Experiment]:
    """Each once, in the page's order."""
    return list(dict.fromkeys(claim.experiment for claim in CLAIMS if claim.experiment))


def _chosen(only: Sequence[str], cheap: bool) -> list[Experiment]:
    wanted = {
        claim.experiment
        for claim in CLAIMS
        if claim.experiment
        and any(n.startswith(tuple(only)) for n in (claim.name, claim.experiment.name))
    }
    return [e for e in experiments() if (not only or e in wanted) and (e.cheap or not cheap)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if an experiment failed, 2 if nothing could be run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print verdicts, run nothing")
    parser.add_argument("--page", action="store_true", help="make the page only")
    parser.add_argument("--only", action="append", metavar="NAME", default=[], help="repeatable")
    parser.add_argument("--cheap", action="store_true", help="those that take seconds")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "claims", metavar="DIR")
    options = parser.parse_args(arguments)
    if options.list:
        for claim in CLAIMS:
            ran = claim.experiment.command if claim.experiment else "-"
            print(f"{claim.name:24} {row(claim)['verdict']:17} {ran}")
        return 0
    chosen = [] if options.page else _chosen(options.only, options.cheap)
    if not chosen and not options.page:
        known = ", ".join(each.name for each in experiments())
        print(f"error: --only: found {options.only}, allowed are {known}", file=sys.stderr)
        return 2
    failed = []
    for place, each in enumerate(chosen, 1):
        began = time.monotonic()
        print(f"{place} of {len(chosen)}  {each.name}", flush=True)
        try:
            each.perform(options.runs).write(each.file)
        except (OSError, RuntimeError, ValueError) as wrong:
            failed.append(each.name)
            print(f"failed: {each.name}: {wrong}", file=sys.stderr, flush=True)
        print(f"    after {time.monotonic() - began:,.0f} s", flush=True)
    PAGE.write_text(render(PARTS))
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

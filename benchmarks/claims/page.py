"""docs/claims.md, made of the claims and of the kept figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import ROOT, read_kept
from benchmarks.claims.rules import VERDICTS

PAGE = ROOT / "docs" / "claims.md"


def row(claim: Claim) -> dict[str, Any]:
    """A claim with what its experiment's file says. Raises ValueError for a file that is wrong or
    lacks a figure."""
    kept = read_kept(claim.experiment.file) if claim.experiment else None
    figures = kept.figures if kept else None
    try:
        return {
            "claim": claim,
            "here": claim.here(figures),
            "conditions": claim.condition(figures),
            "verdict": claim.verdict(figures),
            "kept": kept,
        }
    except (KeyError, ValueError) as wrong:
        raise ValueError(f"{claim.name}: {wrong}") from None


def render(parts: Mapping[str, Sequence[Claim]]) -> str:
    """The page. Raises ValueError, see `row`."""
    rows = {heading: [row(claim) for claim in claims] for heading, claims in parts.items()}
    counts = Counter(each["verdict"] for part in rows.values() for each in part)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    template = environment.get_template("page.md.j2")
    return template.render(parts=rows, counts={name: counts[name] for name in VERDICTS})

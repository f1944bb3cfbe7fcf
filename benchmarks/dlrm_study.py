"""The results of the DLRM case study: tables, figures, and a line for each of its claims.

    .venv/bin/groundwire study studies/dlrm-case-study.yaml --out DIR
    .venv/bin/python -m benchmarks.dlrm_study DIR --page docs/dlrm-study.md

`make study` does both. The second writes what stands between two marks of the page, and figures
into a folder beside it that has the page's name. Cases that have no run yet are said, so it can be
called while the first is at work.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.report.summary_page import standalone
from analysis.runs.collectives import collectives_of
from analysis.runs.run import load_run
from analysis.studies.charts.series import bars, lines
from groundwire.studies.outcomes import is_done
from groundwire.studies.planning import plan_study

STUDY = "studies/dlrm-case-study.yaml"
BEGIN, END = "<!-- begin: make study -->", "<!-- end: make study -->"
PUBLISHED = "as published"
INJECTION = {
    "0.01 us": PUBLISHED,
    "1 us": "injection 1 us",
    "10 us": "injection 10 us",
    "100 us": "injection 100 us",
}
IN_FLIGHT = {
    "1": "1 in flight",
    "4": "4 in flight",
    "16": PUBLISHED,
    "32": "32 in flight",
    "64": "64 in flight",
}
CHUNKS = {"1": "1 chunk", "4": "4 chunks", "32": "32 chunks"}
PASSES = (0, 1)


@dataclass(frozen=True)
class Outcome:
    """A case's run."""

    directory: Path

    @cached_property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "result.json").read_text())
        return found

    @property
    def us(self) -> float:
        """The two passes."""
        return float(self.result["iterations"][0]["duration_ns"]) / 1000

    @property
    def exposed_us(self) -> float:
        return float(self.result["iterations"][0]["exposed_comm_ns"]) / 1000

    @property
    def computing_us(self) -> float:
        return float(self.result["iterations"][0]["compute_ns"]) / 1000

    @property
    def lost(self) -> str:
        summary = self.result["summary"]
        return f"{summary['drops']:,}, {summary['retransmits']:,}"

    @cached_property
    def raw_us(self) -> Mapping[str, float]:
        """By what a collective is (`Top0`, `AlltoAll backward`): from posting to the last rank's
        end, the mean of the passes."""
        found: dict[str, list[float]] = {}
        for row in self.result["collectives"]:
            found.setdefault(_what(row["id"]), []).append(row["duration_ns"] / 1000)
        return {what: sum(times) / len(times) for what, times in found.items()}

    @cached_property
    def waited_us(self) -> Mapping[str, float]:
        """By what a collective is: what ranks were blocked on it, the mean of ranks and passes."""
        found: dict[str, float] = {}
        for each in collectives_of(load_run(self.directory)):
            waited = sum(r.waited_ns for r in each.by_rank.values()) / len(each.by_rank)
            what = _what(each.id)
            found[what] = found.get(what, 0.0) + waited / 1000 / len(PASSES)
        return found

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers with gradients, in their order."""
        found = [what for what in self.raw_us if what[:3] in ("Bot", "Top")]
        return tuple(sorted(found, key=lambda what: (what[:3], int(what[3:]))))


Outcomes = Mapping[str, Mapping[str, Outcome]]
"""By system, then by what was changed."""


def _what(id: str) -> str:
    """`Top0` of i0.weight_gradient.1.8.Top0; the embedding's are AlltoAlls."""
    _, phase, _, _, layer = id.split(".")
    if layer != "Embedding":
        return layer
    return "AlltoAll forward" if phase == "forward" else "AlltoAll backward"


def outcomes_of(study: Path, directory: Path) -> tuple[dict[str, dict[str, Outcome]], int]:
    """The cases that have a valid run, and how many have none."""
    found: dict[str, dict[str, Outcome]] = {}
    missing = 0
    for case in plan_study(study).cases:
        system, change = (str(case.levels[name]) for name in ("system", "change"))
        found.setdefault(system, {})
        cases = directory / "cases"
        outcome = Outcome(cases / case.key)
        if case.emulated is None or not is_done(case.emulated, cases):
            missing += 1
        elif not outcome.result["valid"]:
            raise SystemExit(f"{system}, {change}: {outcome.result['invalid_reasons']}")
        else:
            found[system][change] = outcome
    return found, missing


def _cells(found: Outcomes, change: str) -> Iterator[str]:
    """The two passes, and by how much a change makes them longer."""
    for outcomes in found.values():
        if change not in outcomes:
            yield "not run"
            continue
        text = f"{outcomes[change].us:,.1f}"
        if change != PUBLISHED and PUBLISHED in outcomes:
            text += f" ({outcomes[change].us / outcomes[PUBLISHED].us:.2f})"
        yield text


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _head(found: Outcomes, first: str) -> str:
    return _row(first, *found) + "|---|" + "---|" * len(found) + "\n"


def published_table(found: Outcomes) -> str:
    """The four systems as published."""
    shown = {system: outcomes.get(PUBLISHED) for system, outcomes in found.items()}

    def cells(figure: Any) -> Iterator[str]:
        for one in shown.values():
            yield "not run" if one is None else figure(one)

    text = _head(found, "us")
    text += _row("two passes", *cells(lambda o: f"{o.us:,.1f}"))
    text += _row("computing", *cells(lambda o: f"{o.computing_us:,.1f}"))
    text += _row("exposed communication", *cells(lambda o: f"{o.exposed_us:,.1f}"))
    for what in ("AlltoAll forward", "AlltoAll backward", "Bot0", "Top0", "Top1"):
        text += _row(
            f"{what}, raw / exposed",
            *cells(lambda o, w=what: f"{o.raw_us[w]:.1f} / {o.waited_us[w]:.1f}"),
        )
    text += _row("longest all-reduce", *cells(lambda o: max(o.layers, key=o.raw_us.__getitem__)))
    return text + _row("drops, retransmits", *cells(lambda o: o.lost))


def changes_table(found: Outcomes) -> str:
    """The effect of each change on the two passes, with the ratio to as published."""
    changes = dict.fromkeys(change for outcomes in found.values() for change in outcomes)
    text = _head(found, "two passes, us (times as published)")
    return text + "".join(_row(change, *_cells(found, change)) for change in changes)


def slowdown(found: Outcomes, system: str, change: str) -> float | None:
    """How much longer the two passes take with a change; None where a run is missing."""
    outcomes = found[system]
    if change not in outcomes or PUBLISHED not in outcomes:
        return None
    return outcomes[change].us / outcomes[PUBLISHED].us


def _ratios(found: Outcomes, change: str) -> dict[str, float]:
    known = {system: slowdown(found, system, change) for system in found}
    return {system: ratio for system, ratio in known.items() if ratio is not None}


def _said(ratios: Mapping[str, float]) -> str:
    return ", ".join(f"{system} {ratio:.2f}" for system, ratio in ratios.items())


def claims(found: Outcomes) -> Iterator[tuple[str, str, str]]:
    """(claim, verdict, figures) of what the runs can tell."""
    base = {s: o[PUBLISHED] for s, o in found.items() if PUBLISHED in o}
    if len(base) == len(found):
        times = {s: o.us for s, o in base.items()}
        slow, fast = max(times, key=times.__getitem__), min(times, key=times.__getitem__)
        ratio = times[slow] / times[fast]
        verdict = "reproduced" if 2.5 <= ratio <= 4.5 else "otherwise"
        yield "3 times between systems", verdict, f"{slow} takes {ratio:.1f} times {fast}"
        tops = {s: max(o.layers, key=o.raw_us.__getitem__) for s, o in base.items()}
        alone = all(top == "Top0" for top in tops.values())
        more = ", ".join(f"{s}: {t}" for s, t in tops.items())
        exposed = {s: max(o.layers, key=o.waited_us.__getitem__) for s, o in base.items()}
        yield (
            "Top0 has the longest raw all-reduce",
            "reproduced" if alone else "not reproduced",
            f"{more}; most exposed: {', '.join(f'{s}: {t}' for s, t in exposed.items())}",
        )
        parts = {
            s: (o.waited_us["AlltoAll backward"] + o.waited_us["AlltoAll forward"],
                sum(t for w, t in o.waited_us.items() if w.startswith("Bot")))
            for s, o in base.items()
        }  # fmt: skip
        differ = all(max(a, b) > 1.1 * min(a, b) for a, b in parts.values())
        yield (
            "exposed latency of the AlltoAll differs from the bottom MLP's",
            "reproduced" if differ else "not reproduced",
            "; ".join(f"{s} {a:.1f} and {b:.1f} us" for s, (a, b) in parts.items()),
        )
    fifo = {s: o["FIFO"] for s, o in found.items() if "FIFO" in o and s in base}
    if fifo:
        raw = {s: (base[s].raw_us["Bot0"], o.raw_us["Bot0"]) for s, o in fifo.items()}
        shorter = all(lifo < other for lifo, other in raw.values())
        yield (
            "LIFO shows in raw latency: what was posted last and is needed first ends sooner",
            "reproduced" if shorter else "not reproduced",
            "Bot0 "
            + "; ".join(f"{s} {a:.1f} us, FIFO {b:.1f}" for s, (a, b) in raw.items())
            + f"; two passes with FIFO, as a multiple: {_said(_ratios(found, 'FIFO'))}",
        )
    for change in ("injection 10 us", "injection 100 us"):
        ratios = _ratios(found, change)
        flat = [r for s, r in ratios.items() if s.startswith("Flat")]
        hier = [r for s, r in ratios.items() if s.startswith("Hier")]
        if flat and hier:
            holds = min(flat) > max(hier)
            verdict = "reproduced" if holds else "otherwise"
            yield f"Flat is more sensitive to {change}", verdict, _said(ratios)
    ratios = _ratios(found, "buffer 2 MB")
    if len(ratios) > 1:
        lost = ", ".join(f"{s} {found[s]['buffer 2 MB'].lost}" for s in ratios)
        differ = max(ratios.values()) > 1.05 * min(ratios.values())
        yield (
            "Flat and Hier differ in sensitivity to the switch's buffer",
            "reproduced" if differ else "not reproduced",
            f"2 MB: {_said(ratios)}; drops, retransmits: {lost}",
        )
    for title, levels in (("chunks in flight", IN_FLIGHT), ("chunks", CHUNKS)):
        best = {}
        for system, outcomes in found.items():
            if all(change in outcomes for change in levels.values()):
                times = {at: outcomes[change].us for at, change in levels.items()}
                best[system] = min(times, key=times.__getitem__)
        if best:
            first, *_, last = levels
            inside = [s for s, at in best.items() if at not in (first, last)]
            verdict = "reproduced" if len(inside) == len(best) else "of some systems"
            yield (
                f"an optimum of {title} inside the range",
                verdict if inside else "not reproduced",
                "best: " + ", ".join(f"{s} {at}" for s, at in best.items()),
            )


def figures(found: Outcomes) -> Iterator[tuple[str, str, str]]:
    """(name, title, SVG) of each figure that there are runs for."""
    base = {s: o[PUBLISHED] for s, o in found.items() if PUBLISHED in o}
    if base:
        parts = {s: {"computing": o.computing_us, "exposed": o.exposed_us} for s, o in base.items()}
        drawing = bars(parts, "Two passes by system (us)")
        yield "systems", "Computing and exposed communication of two passes", standalone(drawing)
        for name, title in (("raw", "Raw"), ("exposed", "Exposed")):
            values = {
                s: {w: (o.raw_us if name == "raw" else o.waited_us)[w]
                    for w in ("AlltoAll forward", "AlltoAll backward", *o.layers)}
                for s, o in base.items()
            }  # fmt: skip
            drawing = lines(values, f"{title} latency by layer (us)", logarithmic=name == "raw")
            yield (
                name,
                f"{title} latency of each collective, mean of two passes",
                standalone(drawing),
            )
    for name, title, levels in (
        ("injection", "injection latency", INJECTION),
        ("in-flight", "chunks in flight", IN_FLIGHT),
        ("chunks", "chunks of an all-reduce", CHUNKS),
    ):
        series = {
            s: {at: o[change].us for at, change in levels.items() if change in o}
            for s, o in found.items()
        }
        series = {s: points for s, points in series.items() if len(points) > 1}
        if series:
            drawing = lines(series, f"Two passes by {title} (us)", logarithmic=True)
            yield name, f"Two passes by {title}", standalone(drawing)


def page(found: Outcomes, missing: int, folder: Path) -> str:
    """The text between the page's marks; figures are written into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    text = (
        f"{sum(map(len, found.values()))} of {sum(map(len, found.values())) + missing} cases.\n\n"
    )
    text += "### As published\n\n" + published_table(found)
    text += "\n### One thing changed\n\n" + changes_table(found)
    text += "\n### Claims\n\n| claim | here | figures |\n|---|---|---|\n"
    text += "".join(_row(*claim) for claim in claims(found))
    text += "\n### Figures\n"
    for name, title, svg in figures(found):
        (folder / f"{name}.svg").write_text(svg)
        text += f"\n{title}:\n\n![{title}]({folder.name}/{name}.svg)\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, help="the study's")
    parser.add_argument("--study", type=Path, default=Path(STUDY))
    parser.add_argument("--page", type=Path, required=True)
    options = parser.parse_args()
    old = options.page.read_text()
    if BEGIN not in old or END not in old:
        raise SystemExit(f"{options.page}: found no marks, expected {BEGIN} and {END}")
    found, missing = outcomes_of(options.study, options.directory)
    new = page(found, missing, options.page.parent / options.page.stem)
    before, after = old.partition(BEGIN)[0], old.partition(END)[2]
    options.page.write_text(f"{before}{BEGIN}\n{new}{END}{after}")
    print(f"{options.page}: {missing} cases are not run yet" if missing else options.page)


if __name__ == "__main__":
    main()

"""The findings of a study, in sentences and in small tables."""

from __future__ import annotations

from analysis.report.tables.figures import share, signed_percent
from analysis.report.tables.table import Column, Table, Unit, Value
from analysis.results.result import error_summary
from analysis.studies.cases import RESPONSES, TIME, Case, StudyCases, pareto_front, value_of
from analysis.studies.charts.scales import response_text
from analysis.studies.effects import Effects, range_between_levels

_LISTED = 5
_MATTERS = 0.05
"""A factor matters whose levels are this share of the mean apart."""
_UNSEEN = 0.1
"""A predictor does not see a factor of whose measured effect it has less than this share."""


def findings(study: StudyCases, effects: Effects | None) -> tuple[str, ...]:
    """Sentences, what matters most first."""
    said = []
    if effects is not None and effects.mains:
        said += _of_effects(effects)
    ranked = study.ranked(study.response)
    if ranked:
        title = RESPONSES[study.response][0]
        best, worst = ranked[0], ranked[-1]
        said.append(
            f"Best {title}: {response_text(study.response, value_of(best, study.response))} with "
            f"{levels_text(best)} (case {best.number}); worst: "
            f"{response_text(study.response, value_of(worst, study.response))} with "
            f"{levels_text(worst)} (case {worst.number})."
        )
    said += _of_predictions(study)
    failed = [case for case in study.cases if case.failure is not None]
    if failed:
        lines = str(failed[0].failure).splitlines()
        # A trace says at its end what has happened, a message at its beginning.
        words = lines[-1] if lines[0].startswith("Traceback") else lines[0]
        said.append(f"{len(failed)} of {len(study.cases)} cases failed: {words}")
    invalid = [case for case in study.cases if case.valid is False]
    if invalid:
        said.append(f"{len(invalid)} cases are not valid, and are left out of every figure.")
    beyond = [case for case in study.cases if study.beyond_limits(case)]
    if beyond:
        said.append(f"{len(beyond)} cases are beyond the limits, and are no candidates for best.")
    return tuple(said)


def _of_effects(effects: Effects) -> list[str]:
    title = RESPONSES[effects.response][0]
    first, *others = sorted(effects.mains, key=lambda main: -main.share)
    said = [
        f"{first.factor} decides the {title}: {share(first.share)} of the sum of squares, "
        f"{response_text(effects.response, first.range)} between its best level "
        f"({first.best.level}) and its worst."
        if first.share > 0
        else f"No factor changes the {title}."
    ]
    if others and first.share > 0:
        rest = ", ".join(f"{main.factor} {share(main.share)}" for main in others)
        said.append(f"The other factors: {rest}.")
    strongest = next(iter(effects.interactions), None)
    if strongest is not None and strongest.share > 0.01:
        said.append(
            f"The strongest interaction: {strongest.row} × {strongest.column}, "
            f"{share(strongest.share)}."
        )
    variance = effects.variance
    if not variance.balanced:
        said.append(
            "The design is not balanced, so shares depend on the order of the factors: each has "
            "the part that it explains beyond those before it."
        )
    aliased = [term.label for term in variance.terms if term.aliased and not term.sum_of_squares]
    if aliased:
        said.append(f"The design cannot tell these from others: {', '.join(aliased)}.")
    return said


def _of_predictions(study: StudyCases) -> list[str]:
    errors = [case.error for case in study.answered(TIME) if case.error is not None]
    predicted = [case for case in study.cases if case.how == "predicted"]
    said = []
    if errors:
        summary = error_summary(error for error in errors if error > -1)
        signed = (signed_percent(min(errors)), signed_percent(max(errors)))
        said.append(
            f"{study.predictor} beside {len(errors)} emulated cases: mean error "
            f"{share(summary['mean'])}, from {signed[0]} to {signed[1]}."
        )
        said += _of_unseen_factors(study)
    if predicted:
        ranks = sorted({case.ranks for case in predicted})
        span = f"{ranks[0]:,}" if len(ranks) == 1 else f"{ranks[0]:,} to {ranks[-1]:,}"
        trust = "" if errors else " No case is emulated beside them, so nothing here checks them."
        said.append(
            f"{len(predicted)} cases of {span} ranks are predicted by {study.predictor}.{trust}"
        )
    return said


def _of_unseen_factors(study: StudyCases) -> list[str]:
    """The factors that change what is measured, and hardly what is predicted."""
    cases = [case for case in study.answered(TIME) if case.error is not None]
    measured = [value_of(case, TIME) for case in cases]
    predicted = [float(case.predicted_ns or 0) for case in cases]
    said = []
    for factor in study.factors:
        seen, told = (range_between_levels(factor, cases, v) for v in (measured, predicted))
        if seen > _MATTERS * sum(measured) / len(measured) and told < _UNSEEN * seen:
            said.append(
                f"{study.predictor} does not see {factor.name}: its levels are "
                f"{response_text(TIME, seen)} apart as measured, {response_text(TIME, told)} as "
                f"predicted. Predictions of {study.predictor} say nothing of {factor.name}."
            )
    return said


def levels_text(case: Case) -> str:
    """A case's levels on one line."""
    return ", ".join(f"{name} {level}" for name, level in case.levels.items())


def best_and_worst(study: StudyCases) -> Table:
    """The cases within the limits that are at the ends, by the first response."""
    ranked = study.ranked(study.response)
    ends = [("best", case) for case in ranked[:_LISTED]]
    ends += [("worst", case) for case in ranked[max(_LISTED, len(ranked) - _LISTED) :]]
    return _cases_table(study, "best", "Best and worst cases", ends)


def front_table(study: StudyCases) -> Table | None:
    """The Pareto front of time against cost, the cheapest first; None without prices."""
    cases = [case for case in study.ranked(TIME) if case.cost is not None]
    if not cases:
        return None
    points = [(case.cost or 0.0, value_of(case, TIME)) for case in cases]
    chosen = [("front", cases[position]) for position in pareto_front(points)]
    return _cases_table(study, "pareto", "Pareto front of time against cost", chosen)


def _cases_table(study: StudyCases, name: str, title: str, cases: list[tuple[str, Case]]) -> Table:
    priced = any(case.cost is not None for _, case in cases)
    columns = [
        Column("which", "which"),
        Column("case", "case", Unit.COUNT),
        *(Column(f.name, f.name, f.unit if f.quantity else Unit.TEXT) for f in study.factors),
        Column("seed", "seed", Unit.COUNT),
        Column("ranks", "ranks", Unit.COUNT),
        *(Column(r, *RESPONSES[r]) for r in study.responses),
        *([Column("cost", "cost", Unit.NUMBER)] if priced else []),
    ]
    rows: list[tuple[Value, ...]] = [
        (
            which,
            case.number,
            *(case.levels[f.name] for f in study.factors),
            case.seed,
            case.ranks,
            *(case.responses.get(r) for r in study.responses),
            *([case.cost] if priced else []),
        )
        for which, case in cases
    ]
    return Table(name, title, tuple(columns), tuple(rows))


def variance_table(effects: Effects) -> Table:
    """The analysis of variance: a row for each term, then what is left, then the total."""
    title, unit = RESPONSES[effects.response]
    variance = effects.variance
    columns = (
        Column("term", "term"),
        Column("degrees_of_freedom", "degrees of freedom", Unit.COUNT),
        Column("sum_of_squares", f"sum of squares ({unit.value}²)", Unit.NUMBER),
        Column("share", "share", Unit.SHARE),
    )
    rows: list[tuple[Value, ...]] = [
        (term.label, term.degrees_of_freedom, term.sum_of_squares, term.share)
        for term in variance.terms
    ]
    rows.append(
        (
            "everything else",
            variance.rest_degrees_of_freedom,
            variance.rest,
            variance.rest_share,
        )
    )
    freedom = variance.observations - 1
    rows.append(("total", freedom, variance.total, 1.0 if variance.total else 0.0))
    name = f"variance_{effects.response}"
    return Table(name, f"Analysis of variance: {title}", columns, tuple(rows))


def effects_table(effects: Effects) -> Table:
    """The main effects: a row for each level."""
    title, unit = RESPONSES[effects.response]
    columns = (
        Column("factor", "factor"),
        Column("level", "level"),
        Column("cases", "cases", Unit.COUNT),
        Column("mean", f"mean {title}", unit),
        Column("effect", "beside the mean of all", Unit.ERROR),
        Column("least", "least", unit),
        Column("most", "most", unit),
    )
    rows: list[tuple[Value, ...]] = [
        (
            main.factor,
            level.level,
            level.cases,
            level.mean,
            level.mean / effects.mean - 1 if effects.mean else None,
            level.least,
            level.most,
        )
        for main in effects.mains
        for level in main.levels
    ]
    name = f"effects_{effects.response}"
    return Table(name, f"Main effects: {title}", columns, tuple(rows))

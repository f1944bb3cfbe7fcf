"""The findings of a design, in sentences and in tables."""

from __future__ import annotations

from analysis.design.comparison import by_tensor, clusters, equal_split
from analysis.design.search import Found, Solution
from analysis.design.sensitivity import memory_steps, sensitivities
from analysis.report.tables.figures import duration, number, share, size
from analysis.report.tables.table import Column, Table, Unit, Value, table

_LISTED = 200


def findings(found: Found) -> tuple[str, ...]:
    """Sentences, what matters most first."""
    best, design = found.best, found.file.sections.design
    told = [f"Best by {design.objective}: {_point_words(best)}: {duration(best.time_ns)}"]
    exposed = best.exposed_ns / best.time_ns if best.time_ns else 0.0
    told[0] += f", {share(exposed)} of it exposed communication"
    told[0] += f", at a cost of {number(best.cost)}." if best.cost else "."
    equal = equal_split(found)
    if equal is not None:
        text = (
            f"The same bandwidth split equally takes {duration(equal.time_ns)}: a gain of "
            f"{equal.gain:.3f}x"
        )
        if design.objective == "time-x-cost":
            text += f" in time, and of {equal.product_gain:.3f}x in time x cost"
        told.append(f"{text}.")
    active = [one for one in sensitivities(found) if one.per_unit]
    for one in active[:4]:
        worth = f"{number(abs(one.per_unit))} {_objective_unit(found)}"
        sign = "more" if one.per_unit > 0 else "less"
        told.append(
            f"Active: {one.constraint} ({one.value}); each {one.unit} more of it makes it {worth} "
            f"{sign}, 1% {abs(one.elasticity):.3f}%."
            if one.limit
            else f"Active: {one.constraint}; each {one.unit} between them makes it {worth} {sign}."
        )
    steps = memory_steps(found)
    if steps:
        first, last = steps[0], steps[-1]
        told.append(
            f"Memory decides: with {size(first.footprint_bytes)} on a host, {first.words} would "
            f"take {duration(first.time_ns)}; with {size(last.footprint_bytes)}, {last.words} "
            f"{duration(last.time_ns)}."
        )
    told += _of_clusters(found)
    broken = [f"{count} by {miss.constraint}" for miss, count in found.impossible]
    told.append(
        f"{found.points} points: {len(found.solved)} solved, {found.pruned} pruned, "
        f"{sum(count for _, count in found.impossible)} excluded"
        + (f" ({', '.join(broken)})." if broken else ".")
    )
    return tuple(told)


def _objective_unit(found: Found) -> str:
    """The quantity that multipliers count."""
    units = {"time": "ns", "cost": "$", "time-x-cost": "ns x $"}
    return units[found.file.sections.design.objective]


def _of_clusters(found: Found) -> list[str]:
    told = []
    rows = clusters(found)
    if rows:
        first, last = rows[0], rows[-1]
        spread = last.best.time_ns / first.best.time_ns
        told.append(
            f"The best of {len(rows)} clusters is {first.words} "
            f"({duration(first.best.time_ns)}), the worst {last.words} "
            f"({duration(last.best.time_ns)}): {spread:.2f}x apart."
        )
    lines = by_tensor(found)
    optima = {words: min(line.values(), key=lambda s: s.objective) for words, line in lines.items()}
    degrees = {s.point.strategy.tensor for s in optima.values() if s.point.strategy is not None}
    if len(optima) > 1 and len(degrees) > 1:
        clusters_of: dict[int, list[str]] = {}
        for words, solution in optima.items():
            if solution.point.strategy is not None:
                clusters_of.setdefault(solution.point.strategy.tensor, []).append(words)
        each = "; ".join(
            f"{degree} in {len(named)} ({named[0]}{' and others' if len(named) > 1 else ''})"
            for degree, named in sorted(clusters_of.items())
        )
        told.append(f"The best degree of tensor parallelism differs by cluster: {each}.")
    return told


def _point_words(solution: Solution) -> str:
    dimensions = solution.point.dimensions
    rates = ", ".join(
        f"{one.name} {rate:.4g} GB/s"
        for one, rate in zip(dimensions, solution.gbytes_per_s, strict=True)
    )
    return f"{solution.point.words}; {rates}" if solution.point.words else rates


def points_table(found: Found) -> Table:
    """A row for each solved point, the best first."""
    dimensions = found.best.point.dimensions
    names = list(dict.fromkeys(name for s in found.solved for name in s.point.chosen))
    columns = [
        *(Column(f"chosen_{name.replace(' ', '_')}", name) for name in names),
        *(
            Column(f"{one.name}_gbytes_per_s", f"{one.name} (GB/s)", Unit.NUMBER)
            for one in dimensions
        ),
        Column("time_ns", "time", Unit.DURATION),
        Column("compute_ns", "computation", Unit.DURATION),
        Column("exposed_ns", "exposed communication", Unit.DURATION),
        Column("footprint_bytes", "footprint", Unit.SIZE),
        Column("cost", "cost", Unit.NUMBER),
        Column("gap", "gap to the bound", Unit.NUMBER),
    ]
    rows: list[tuple[Value, ...]] = [
        (
            *(s.point.chosen.get(name) for name in names),
            *(round(rate, 9) for rate in s.gbytes_per_s),
            round(s.time_ns, 3),
            round(s.work.demand.compute_ns, 3),
            round(s.exposed_ns, 3),
            round(s.work.footprint_bytes),
            round(s.cost, 6),
            float(f"{s.gap:.1e}"),
        )
        for s in found.solved
    ]
    return table("points", "Points", columns, rows)


def best_table(found: Found) -> Table:
    """The winner's bandwidth in each dimension beside the equal split."""
    equal, best = equal_split(found), found.best
    total = sum(best.gbytes_per_s)
    columns = [
        Column("dimension", "dimension"),
        Column("kind", "kind"),
        Column("size", "size", Unit.COUNT),
        Column("gbytes_per_s", "GB/s", Unit.NUMBER),
        Column("share", "share", Unit.SHARE),
        Column("equal_gbytes_per_s", "equal split (GB/s)", Unit.NUMBER),
    ]
    rows: list[tuple[Value, ...]] = [
        (
            one.name,
            one.kind,
            one.size,
            round(rate, 9),
            rate / total,
            None if equal is None else round(equal.gbytes_per_s[index], 9),
        )
        for index, (one, rate) in enumerate(
            zip(best.point.dimensions, best.gbytes_per_s, strict=True)
        )
    ]
    return table("best", "Bandwidth of the best point", columns, rows)


def sensitivity_table(found: Found) -> Table:
    """A row for each active constraint."""
    of = f"{_objective_unit(found)} for each more"
    columns = [
        Column("constraint", "active constraint"),
        Column("value", "as it is"),
        Column("unit", "unit"),
        Column("per_unit", of, Unit.NUMBER),
        Column("elasticity", "change (%) for 1% more", Unit.NUMBER),
    ]
    rows: list[tuple[Value, ...]] = [
        (one.constraint, one.value, one.unit, one.per_unit, round(one.elasticity, 6))
        for one in sensitivities(found)
    ]
    return table("sensitivities", "Active constraints and multipliers", columns, rows)


def memory_table(found: Found) -> Table:
    """The points that more memory would make possible."""
    columns = [
        Column("words", "strategy"),
        Column("footprint_bytes", "memory needed", Unit.SIZE),
        Column("time_ns", "time", Unit.DURATION),
    ]
    rows: list[tuple[Value, ...]] = [
        (step.words, round(step.footprint_bytes), round(step.time_ns))
        for step in memory_steps(found)
    ]
    return table("memory", "With more memory", columns, rows)


def front_table(found: Found) -> Table:
    """The Pareto front, the cheapest first."""
    dimensions = found.best.point.dimensions
    columns = [
        Column("point", "point"),
        Column("cost", "cost", Unit.NUMBER),
        Column("time_ns", "time", Unit.DURATION),
        *(
            Column(f"{one.name}_gbytes_per_s", f"{one.name} (GB/s)", Unit.NUMBER)
            for one in dimensions
        ),
    ]
    rows: list[tuple[Value, ...]] = [
        (one.words, round(one.cost, 6), round(one.time_ns, 3), *one.gbytes_per_s)
        for one in found.front[:_LISTED]
    ]
    return table("front", "Pareto front of time against cost", columns, rows)


def clusters_table(found: Found) -> Table | None:
    """The best strategy of each cluster; None where only one is looked at."""
    rows_of = clusters(found)
    if not rows_of:
        return None
    best_ns = rows_of[0].best.time_ns
    columns = [
        Column("cluster", "cluster"),
        Column("strategy", "best strategy"),
        Column("time_ns", "time", Unit.DURATION),
        Column("times_best", "over the best", Unit.NUMBER),
        Column("exposed_ns", "exposed communication", Unit.DURATION),
        Column("footprint_bytes", "footprint", Unit.SIZE),
        Column("cost", "cost", Unit.NUMBER),
        Column("strategies", "strategies that fit", Unit.COUNT),
    ]
    rows: list[tuple[Value, ...]] = [
        (
            row.words,
            str(row.best.point.strategy or ""),
            round(row.best.time_ns),
            row.best.time_ns / best_ns,
            round(row.best.exposed_ns),
            round(row.best.work.footprint_bytes),
            round(row.best.cost, 6),
            row.strategies,
        )
        for row in rows_of
    ]
    return table("clusters", "Clusters", columns, rows)

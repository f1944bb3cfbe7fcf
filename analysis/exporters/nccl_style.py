"""The collectives of a run as nccl-tests prints them, for scripts that read its output.

Columns and units are those of nccl-tests' src/common.cu and src/all_reduce.cu: times in
microseconds, bandwidths in GB/s (10^9 bytes), sizes in bytes. Gloo's collectives are measured in
one way only, which stands in the out-of-place columns. `#wrong` is 0 where ranks check every
result, as a wrong one fails the run, and N/A where ranks do not check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.metrics.collective import CollectiveMetrics, collective_metrics
from analysis.results.notes import payload_checked
from analysis.runs.run import Run
from collectives.kinds import Kind, bus_factor

# nccl-tests' names of types, and of operations (src/common.cu there); others have one name.
_TYPES = {"float16": "half", "float32": "float", "float64": "double"}
_BY_SIZE = {2: "half", 4: "float", 8: "double", 1: "int8"}


@dataclass(frozen=True)
class _Line:
    kind: str
    size_bytes: int
    element_bytes: int
    op: str
    root: int
    ranks: int
    times_ns: tuple[int, ...]
    algbw_gbytes: float
    busbw_gbytes: float


def render_nccl_style(run: Run) -> str:
    """A block per kind of collective, a line per size; times are means over the iterations.

    Raises RunError.
    """
    lines = _lines(collective_metrics(run))
    parts = [_preamble(run)]
    dtype = getattr(run.spec.workload, "dtype", None)
    for kind in dict.fromkeys(line.kind for line in lines):
        of_kind = [line for line in lines if line.kind == kind]
        parts.append(_block(kind, of_kind, dtype, "0" if payload_checked(run.spec) else "N/A"))
    return "\n".join(parts)


def _lines(metrics: Iterable[CollectiveMetrics]) -> list[_Line]:
    groups: dict[tuple[str, int, int, str, int, int], list[CollectiveMetrics]] = {}
    for m in metrics:
        c = m.collective
        key = (c.kind, c.size_bytes, c.element_bytes, c.op, c.root, len(c.ranks))
        groups.setdefault(key, []).append(m)
    found = []
    for (kind, size_bytes, element_bytes, op, root, ranks), members in sorted(groups.items()):
        times = tuple(m.duration_ns for m in members)
        mean = sum(times) / len(times)
        factor = bus_factor(Kind(kind), ranks)
        algbw = size_bytes / mean if mean else 0.0
        found.append(
            _Line(kind, size_bytes, element_bytes, op, root, ranks, times, algbw, algbw * factor)
        )
    return found


def _preamble(run: Run) -> str:
    lines = [
        f"# groundwire {run.environment.versions.get('groundwire', '')} {run.spec.name} "
        f"kernel {run.environment.kernel} seed {run.environment.seed}",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {log.rank:>3} Group  0 on {log.host:>10} address {log.address}"
        for log in run.ranks
    ]
    return "\n".join([*lines, "#"])


def _block(kind: str, lines: list[_Line], dtype: str | None, wrong: str) -> str:
    heading = [
        f"# {kind}",
        f"# {'':>11} {'':>12} {'':>8} {'':>7} {'':>6} {'out-of-place':>31}",
        f"# {'size':>11} {'count':>12} {'type':>8} {'redop':>7} {'root':>6} {'time':>9} "
        f"{'algbw':>7} {'busbw':>7} {'#wrong':>6}",
        f"# {'(B)':>11} {'(elements)':>12} {'':>8} {'':>7} {'':>6} {'(us)':>9} "
        f"{'(GB/s)':>7} {'(GB/s)':>7} {'':>6}",
    ]
    rows = []
    traits = Kind(kind).traits
    for line in lines:
        redop = line.op if traits.reduces else "none"
        found = _BY_SIZE.get(line.element_bytes, "?") if dtype is None else _TYPES.get(dtype, dtype)
        root = line.root if traits.rooted else -1
        mean_us = sum(line.times_ns) / len(line.times_ns) / 1000
        rows.append(
            f"  {line.size_bytes:>11} {line.size_bytes // line.element_bytes:>12} "
            f"{found:>8} {redop:>7} {root:>6} "
            f"{_time(mean_us):>9} {line.algbw_gbytes:>7.2f} {line.busbw_gbytes:>7.2f} {wrong:>6}"
        )
    average = sum(line.busbw_gbytes for line in lines) / len(lines)
    return "\n".join([*heading, *rows, f"# Avg bus bandwidth    : {average:.6g}", "#", ""])


def _time(microseconds: float) -> str:
    """As many decimals as nccl-tests shows for a time of this size."""
    if microseconds >= 10_000:
        return f"{microseconds:.0f}"
    return f"{microseconds:.1f}" if microseconds >= 100 else f"{microseconds:.2f}"

"""`groundwire nccl-tests`: nccl-tests' table, of one run, with predictions beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from collectives.kinds import Kind, bus_factor
from collectives.nccl.of_run import tuner_of
from collectives.nccl.tuner import FUNCTION_OF, Tuner
from collectives.settings import settings_of
from groundwire import forecast, pipeline
from groundwire.commands.console.overrides import parse_overrides
from groundwire.commands.nccl.sizes import parse_size, sizes_of
from groundwire.commands.run import SetOption
from topologies.spec.spec import Spec, parse_dict

PROGRAMS = {
    "all_reduce_perf": Kind.ALL_REDUCE,
    "all_gather_perf": Kind.ALL_GATHER,
    "reduce_scatter_perf": Kind.REDUCE_SCATTER,
    "alltoall_perf": Kind.ALL_TO_ALL,
    "broadcast_perf": Kind.BROADCAST,
    "reduce_perf": Kind.REDUCE,
}
"""nccl-tests' programs that there are kinds for."""

_TYPES = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "half": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "int32": ("int32", 4),
    "int64": ("int64", 8),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A size: times in us; None where nothing says one. `model_us` is NCCL's own estimate, without
    the fabric."""

    size_bytes: int
    time_us: float | None
    predicted_us: float | None
    model_us: float | None
    choice: str


def nccl_tests(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help=", ".join(PROGRAMS))],
    least: Annotated[str, typer.Option("-b", "--minbytes", metavar="SIZE")] = "1K",
    most: Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE")] = "1M",
    factor: Annotated[int, typer.Option("-f", "--stepfactor", metavar="FACTOR")] = 4,
    step: Annotated[str | None, typer.Option("-i", "--stepbytes", metavar="SIZE")] = None,
    datatype: Annotated[
        str, typer.Option("-d", "--datatype", metavar="TYPE", help=", ".join(_TYPES))
    ] = "float",
    root: Annotated[int, typer.Option("-r", "--root", metavar="RANK")] = 0,
    run_to: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="The largest size that ranks run; beyond it sizes are predicted. 0: no run.",
        ),
    ] = "16M",
    predictor: Annotated[
        str, typer.Option(metavar="NAME", help="The predictor of the second column.")
    ] = "packet",
    spec_path: Annotated[
        Path | None,
        typer.Option("--spec", metavar="FILE", help="A spec with a fabric, for other servers."),
    ] = None,
    server: Annotated[str, typer.Option(metavar="NAME", help="A server of `rails`.")] = "dgx-h100",
    servers: Annotated[int, typer.Option(metavar="N", help="How many of them.")] = 2,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the run directory goes.")
    ] = None,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> int:
    """Print nccl-tests' table for a fabric: real ranks run NCCL's programs for every size, in one
    run, and a prediction is beside each. Payload is sent for its time alone, and not checked.

    Exit code 3 says that the run is not valid.
    """
    if program not in PROGRAMS:
        raise typer.BadParameter(f"found {program!r}, allowed: {', '.join(PROGRAMS)}")
    if datatype not in _TYPES:
        raise typer.BadParameter(f"found -d {datatype!r}, allowed: {', '.join(_TYPES)}")
    kind = PROGRAMS[program]
    dtype, item_bytes = _TYPES[datatype]
    overrides = parse_overrides(set_ or [])
    raw = _raw(spec_path, server, servers)
    ranks = _ranks(raw, overrides)
    sizes = sizes_of(kind, least, most, factor, step, ranks, item_bytes)
    last_run = 0 if run_to == "0" else parse_size(run_to)
    run_sizes = [size for size in sizes if size <= last_run]

    def spec_of(some: Iterable[int]) -> Spec:
        operations = [{"kind": str(kind), "size": size} for size in some]
        if kind.traits.rooted:
            operations = [one | {"root": root} for one in operations]
        workload = {
            "kind": "collectives",
            "ranks": ranks,
            "dtype": dtype,
            "operations": operations,
        }
        found = parse_dict(raw | {"workload": workload, "predict": [predictor]}, program)
        return found.with_overrides(overrides, source="--set") if overrides else found

    measured: dict[int, tuple[float, float | None]] = {}
    valid = True
    if run_sizes:
        spec = spec_of(run_sizes)
        with pipeline.run_directory(spec, out) as directory:
            result = pipeline.run(spec, out=directory).result
        valid = bool(result["valid"])
        for one in result["collectives"]:
            told = one["predicted"].get(predictor, {}).get("duration_ns")
            times = one["duration_ns"] / 1000, None if told is None else told / 1000
            measured[one["size_bytes"]] = times
    beyond = [size for size in sizes if size not in measured]
    predicted: dict[int, float] = {}
    if beyond:
        for each in forecast.predict(spec_of(beyond)).collectives:
            answer = each.predicted[predictor].duration_ns
            if answer is not None:
                predicted[each.call.size_bytes] = answer / 1000
    tuner = tuner_of(settings_of(spec_of(sizes)), tuple(range(ranks)))
    rows = [_row(tuner, kind, size, measured, predicted) for size in sizes]
    if as_json:
        print(json.dumps({"valid": valid, "rows": [asdict(row) for row in rows]}, indent=1))
    else:
        _print(rows, kind, ranks, datatype, item_bytes, root, predictor)
    return 0 if valid else 3


def _raw(spec_path: Path | None, server: str, servers: int) -> dict[str, Any]:
    """The sections of the spec but its workload."""
    found: dict[str, Any] = {"name": "nccl-tests"}
    if spec_path is None:
        found["fabric"] = {"kind": "rails", "server": server, "servers": servers}
    else:
        found |= pipeline.resolve(spec_path).to_dict()
        for key in ("workload", "jobs", "predict"):
            found.pop(key, None)
    given = found.get("collectives", {})
    own = given if given.get("backend") == "nccl" else {}
    return found | {"collectives": own | {"backend": "nccl"}, "payload": "timing"}


def _ranks(raw: dict[str, Any], overrides: dict[str, str]) -> int:
    """A rank on every host."""
    one = {"kind": "collectives", "ranks": 2, "operations": [{"kind": "barrier"}]}
    spec = parse_dict(raw | {"workload": one}, "nccl-tests")
    if overrides:
        spec = spec.with_overrides(overrides, source="--set")
    return len(spec.plan.fabric.hosts)


def _row(
    tuner: Tuner,
    kind: Kind,
    size: int,
    measured: dict[int, tuple[float, float | None]],
    predicted: dict[int, float],
) -> Row:
    time_us, told = measured.get(size, (None, predicted.get(size)))
    if kind not in FUNCTION_OF:
        return Row(size, time_us, told, None, "grouped sends")
    choice = tuner.choose(kind, size)
    words = f"{choice.algorithm} {choice.protocol} {choice.channels}"
    return Row(size, time_us, told, round(choice.time_us, 2), words)


def _print(
    rows: list[Row],
    kind: Kind,
    ranks: int,
    datatype: str,
    item_bytes: int,
    root: int,
    predictor: str,
) -> None:
    shown_root = root if kind.traits.rooted else -1
    op = "sum" if kind.traits.reduces else "none"
    print(f"# {ranks} ranks; in-place columns of nccl-tests are not there; payload is not checked")
    print(f"# predicted: by {predictor}; model: NCCL's own estimate, with its launch")
    head = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw")
    more = ("predicted", "busbw", "model", "choice")
    units = (
        "(B)",
        "(elements)",
        "",
        "",
        "",
        "(us)",
        "(GB/s)",
        "(GB/s)",
        "(us)",
        "(GB/s)",
        "(us)",
        "",
    )
    print("#" + _line(head, more))
    print("#" + _line(units[:8], units[8:]))
    for row in rows:
        cells = [str(row.size_bytes), str(row.size_bytes // item_bytes), datatype, op]
        cells += [str(shown_root), _us(row.time_us), *_rates(row, row.time_us, kind, ranks)]
        own = [_us(row.predicted_us), _rates(row, row.predicted_us, kind, ranks)[1]]
        print(" " + _line(cells, [*own, _us(row.model_us), row.choice]))


_WIDTHS = (11, 11, 9, 6, 5, 10, 7, 7)
_MORE = (10, 7, 10)


def _line(cells: Iterable[str], more: Iterable[str]) -> str:
    first = " ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    *own, last = more
    second = " ".join(f"{cell:>{width}}" for cell, width in zip(own, _MORE, strict=True))
    return f"{first}  {second}  {last}"


def _us(time_us: float | None) -> str:
    return "-" if time_us is None else f"{time_us:.2f}"


def _rates(row: Row, time_us: float | None, kind: Kind, ranks: int) -> tuple[str, str]:
    if not time_us:
        return "-", "-"
    algbw = row.size_bytes / time_us / 1000
    return f"{algbw:.2f}", f"{algbw * bus_factor(kind, ranks):.2f}"

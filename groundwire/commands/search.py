"""`groundwire search`: one program under many seeds, in search of a run that fails."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from groundwire.commands.console.overrides import parse_overrides
from groundwire.commands.execute import ExecRefused, Per, load_program, starts
from groundwire.commands.run import KERNELS, HangOption, KernelChoice, KernelOption, SetOption
from groundwire.pipeline import run_directory
from groundwire.search.search import Found, Search
from groundwire.search.variations import HARMLESS, VARIED, Within
from groundwire.studies.dask_engine import DaskEngine
from topologies.spec.errors import suggestion
from topologies.units import parse_time_ns

_HANG_AFTER = "120s"
_FOUND = 1


def search(
    spec_path: Annotated[
        Path, typer.Argument(metavar="SPEC", help="The spec whose fabric to run on.")
    ],
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- PROGRAM ARG", help="The program to run, as `groundwire exec` does."
        ),
    ],
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many seeds, from --first on.")
    ] = 100,
    first_seed: Annotated[
        int, typer.Option("--first", metavar="SEED", min=0, help="The first seed.")
    ] = 1,
    vary: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,...",
            help="The things that seeds vary besides ports and random numbers, among "
            f"{', '.join(VARIED)} (default: the first {len(HARMLESS)}).",
        ),
    ] = None,
    within: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Flaps, kills and limits of memory begin within so long of the programs' start.",
        ),
    ] = "10s",
    operations: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="kill-step kills before one of the first N collectives and messages of a rank.",
        ),
    ] = 1000,
    ranks: Annotated[
        int | None,
        typer.Option("--ranks", "-n", metavar="N", help="World size (default: all hosts)."),
    ] = None,
    ranks_per_host: Annotated[
        int, typer.Option(metavar="G", min=1, help="How many ranks share a host.")
    ] = 1,
    per: Annotated[
        Per, typer.Option(help="Start PROGRAM once per rank, per host, or for the job.")
    ] = Per.auto,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Runs at once (default: one a core)."),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Do the runs at the workers of a Dask scheduler."),
    ] = None,
    reduce: Annotated[
        bool, typer.Option("--reduce/--no-reduce", help="Make each kind of failure smaller.")
    ] = True,
    hang_after: HangOption = _HANG_AFTER,
    kernel: KernelOption = KernelChoice.virtual,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where failures are left (default: runs/NAME-TIME)."),
    ] = None,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> int:
    """Run a program under many seeds, in search of one under which it fails:
    groundwire search SPEC --seeds 200 -- python train.py

    A seed draws ports, random numbers, the order of ranks that are ready at one time, and what
    --vary names. Failures that say the same are one kind. The first one of each is made smaller
    (without faults, with fewer ranks) and left as failure-N/spec.yaml, which `groundwire run` runs
    again to the bit. Exit code 1 says that a run has failed, 0 that none has.
    """
    varied = list(HARMLESS) if vary is None else vary.split(",")
    for name in varied:
        if name not in VARIED:
            hint = suggestion(name, list(VARIED))
            raise ExecRefused(f"--vary {name}: {hint}expected some of {', '.join(VARIED)}")
    workload: dict[str, object] = {
        "kind": "command",
        "argv": command,
        "ranks": ranks_per_host if ranks is None else ranks,
        "ranks_per_host": ranks_per_host,
        "per": starts(per, command),
        "directory": str(Path.cwd()),
    }
    quick = {"predict": "[]", "capture.points": "[]", "counters.interval": "null"}
    hanging = {} if hang_after is None else {"hang_after": hang_after}
    overrides = parse_overrides(set_ or [])
    spec = load_program(spec_path, {}, workload, ranks is None, overrides)
    spec = spec.with_overrides(quick | hanging | overrides, source="--set")
    console = Console(stderr=True)
    began = time.monotonic()

    def told(text: str) -> None:
        console.print(f"{time.monotonic() - began:7.1f} s  {text}", highlight=False)

    with run_directory(spec.model_copy(update={"name": f"{spec.name}-search"}), out) as place:
        place.mkdir(parents=True, exist_ok=True)
        engine = DaskEngine(scheduler, workers)
        wanted = KERNELS[kernel]
        limits = Within(parse_time_ns(within), operations)
        with Search(spec, varied, limits, place, wanted, engine, told) as looked:
            found = looked.run(range(first_seed, first_seed + seeds))
            for number, kind in enumerate(found, start=1):
                if reduce:
                    told(f"failure {number}: {len(kind.seeds)} of {seeds} seeds; making it smaller")
                    looked.reduce(kind)
                _leave(place / f"failure-{number}", kind)
        seconds = time.monotonic() - began
        report = {
            "first_seed": first_seed,
            "seeds": seeds,
            "varied": varied,
            "seconds": round(seconds, 1),
            "failures": [_row(place / f"failure-{n}", k) for n, k in enumerate(found, start=1)],
        }
        (place / "search.json").write_text(json.dumps(report, indent=1) + "\n")
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        _print(seeds, seconds, found, place)
    return _FOUND if found else 0


def _leave(directory: Path, kind: Found) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    smallest = kind.smallest or kind.first.spec
    (directory / "spec.yaml").write_text(smallest.to_yaml())
    (directory / "said.txt").write_text((kind.said or kind.first.said) + "\n")


def _row(directory: Path, kind: Found) -> dict[str, object]:
    smallest = kind.smallest or kind.first.spec
    return {
        "signature": kind.first.signature,
        "seeds": kind.seeds,
        "spec": str(directory / "spec.yaml"),
        "seed": smallest.seed,
        "ranks": smallest.ranks,
        "faults": smallest.to_dict()["faults"],
        "runs_to_reduce": kind.tries,
        "said": kind.said or kind.first.said,
    }


def _print(seeds: int, seconds: float, found: list[Found], place: Path) -> None:
    many = len(found)
    print(f"{seeds} seeds in {seconds:,.1f} s: {many} kind{'s' if many != 1 else ''} of failure")
    for number, kind in enumerate(found, start=1):
        smallest = kind.smallest or kind.first.spec
        shown = ", ".join(map(str, kind.seeds[:8])) + (", ..." if len(kind.seeds) > 8 else "")
        print(f"\nfailure {number}: {len(kind.seeds)} seeds ({shown}): {kind.first.signature}")
        print(f"smallest: seed {smallest.seed}, {smallest.ranks} ranks, "
              f"{len(smallest.faults)} faults")  # fmt: skip
        print(f"again: groundwire run {place / f'failure-{number}' / 'spec.yaml'}")

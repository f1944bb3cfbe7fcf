"""`groundwire nccl`: what NCCL would choose on a spec's servers, in the form of its log."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
import yaml

from collectives.algorithms.base import DoesNotFit
from collectives.kinds import Kind
from collectives.nccl.log import compared, log_lines, read_log
from collectives.nccl.of_run import tuner_of
from collectives.nccl.topology_file import spec_of_topology
from collectives.nccl.tuner import FUNCTION_OF, Tuner
from collectives.settings import settings_of
from groundwire.commands.console.overrides import parse_overrides
from groundwire.commands.nccl.sizes import sizes_of
from groundwire.commands.run import SetOption, SpecPath
from topologies.spec.spec import load_spec


def choices(
    spec_path: SpecPath,
    least: Annotated[str, typer.Option("-b", "--minbytes", metavar="SIZE")] = "1K",
    most: Annotated[str, typer.Option("-e", "--maxbytes", metavar="SIZE")] = "1G",
    factor: Annotated[int, typer.Option("-f", "--stepfactor", metavar="FACTOR")] = 2,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG",
            help="A log of NCCL with NCCL_DEBUG=INFO: print where it differs, and no more. Exit "
            "code 1 says that it does.",
        ),
    ] = None,
    nvls: Annotated[
        bool,
        typer.Option(
            help="Let NCCL choose NVLS and NVLSTree also where no run could have them; a log with "
            "channels of NVLS is compared so by itself.",
        ),
    ] = False,
    collnet: Annotated[
        bool,
        typer.Option(
            help="Let NCCL choose CollNet also where no run could have it, as with a SHARP plugin.",
        ),
    ] = False,
    servers: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            min=1,
            max=128,
            help="With a file of NCCL_TOPO_DUMP_FILE in place of SPEC (NAME.xml): print a spec of "
            "so many servers like its own, and no more.",
        ),
    ] = 2,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the choices as JSON.")] = False,
) -> int:
    """Print what NCCL would choose on the servers of a spec: rings, trees, channels, and the
    algorithm, protocol and channels of each size, as NCCL_DEBUG=INFO with the subsystems INIT,
    GRAPH and TUNING has it. Nothing is run; the backend is nccl whatever the spec says."""
    if spec_path.suffix == ".xml":
        try:
            found_spec = spec_of_topology(str(spec_path), servers)
        except DoesNotFit as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        print(yaml.safe_dump(found_spec, sort_keys=False), end="")
        return 0
    overrides = {"collectives.backend": "nccl"} | parse_overrides(set_ or [])
    spec = load_spec(spec_path, overrides=overrides)
    ranks = spec.workload.ranks
    log = "" if against is None else against.read_text(encoding="utf-8", errors="replace")
    asked = {"NCCL_NVLS_ENABLE": "2"} if nvls or _has_nvls(log) else {}
    asked |= {"NCCL_COLLNET_ENABLE": "1"} if collnet else {}
    if asked:
        env = asked | spec.collectives.env
        # Choices are told that no rank could run, so that the spec is not checked with them.
        changed = spec.collectives.model_copy(update={"env": env})
        spec = spec.model_copy(update={"collectives": changed})
    tuner = tuner_of(settings_of(spec), tuple(range(ranks)))
    if against is not None:
        theirs, found = compared(tuner, log)
        if not (theirs.rings or theirs.trees or theirs.counts or theirs.choices or theirs.graphs):
            print(f"error: {against}: found no choices of NCCL, allowed: a log", file=sys.stderr)
            return 2
        known = (
            f"{len(theirs.rings)} rings, {len(theirs.trees)} places in trees, "
            f"{len(theirs.counts)} counts, {len(theirs.graphs)} patterns, "
            f"{len(theirs.choices)} choices"
        )
        print("\n".join(found) if found else "no difference", f"the log has {known}", sep="\n")
        return 1 if found else 0
    calls = [
        (kind, size)
        for kind in FUNCTION_OF
        for size in sizes_of(kind, least, most, factor, None, ranks, 4)
    ]
    if as_json:
        print(json.dumps(_document(tuner, calls), indent=1))
    else:
        for line in log_lines(tuner, calls):
            print(line)
    return 0


def _has_nvls(log: str) -> bool:
    return bool(read_log(log).counts.get("nvls channels"))


def _document(tuner: Tuner, asked: list[tuple[Kind, int]]) -> dict[str, object]:
    comm = tuner.communicator
    return {
        "channels": comm.channels,
        "nvls_channels": comm.nvls_channels,
        "nvls_heads": [list(head) for head in comm.nvls_heads],
        "collnet_heads": [list(head) for head in comm.collnet_heads],
        "chains": [[list(chain) for chain in chains] for chains in comm.chains],
        "p2p_channels": comm.p2p_channels,
        "p2p_channels_per_peer": comm.p2p_channels_per_peer,
        "rings": [list(ring) for ring in comm.rings],
        "trees": [list(tree.parents) for tree in comm.trees],
        "choices": [
            {"size_bytes": size} | asdict(tuner.choose(kind, size)) for kind, size in asked
        ],
    }

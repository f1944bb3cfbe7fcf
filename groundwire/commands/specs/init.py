"""`groundwire init`: a spec to begin with, commented."""

from __future__ import annotations

import math
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, get_args

import typer

from topologies.installation import command, page
from topologies.spec.errors import suggestion
from topologies.spec.spec import parse_spec
from topologies.spec.workload_section import DlrmWorkload
from topologies.spec.workload_types import PlainCollective
from topologies.units import format_size

_TEMPLATE = """\
# {title}. {reference} has every key.
#   {command} validate {file}    says what is wrong with it
#   {command} predict {file}     what a run would measure, in a moment
#   {command} run {file}         runs it
name: {name}
fabric:
  kind: {fabric}
{size}
  link: {{rate: {rate}, delay: 500ns, mtu: 9000}}  # L1 rate, one-way propagation
  queue: {{kind: dctcp, k: 100KB, buffer: 4MB}}  # a port marks packets from a backlog of k on
transport: {{congestion_control: dctcp}}  # or cubic, reno, bbr, or {{kind: roce}}
workload:
{workload}
  ranks: {ranks}  # one on each host
  iterations: 3
predict: [packet, flow, alpha-beta]  # TCP packet by packet; fluids in ports; closed forms
"""


class FabricKind(StrEnum):
    """`--fabric`. Others are in docs/spec.md."""

    flat = "flat"
    leaf_spine = "leaf-spine"
    fat_tree = "fat-tree"
    torus = "torus"


WORKLOADS = (*get_args(PlainCollective), "dlrm")
"""`--workload`. Others are in docs/spec.md."""
_DLRM = DlrmWorkload(kind="dlrm", ranks=2)
_ITEM_BYTES = 4


class NoWorkload(ValueError):
    """A `--workload` that init does not know."""


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The spec to write.")] = Path(
        "mine.yaml"
    ),
    fabric: Annotated[
        FabricKind | None, typer.Option(help="The shape of the network (default: fat-tree).")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(metavar="N", min=2, max=1024, help="World size (default: 16).")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="Rate of every link (default: 100Gbps).")
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help=f"A collective, or a training step: {', '.join(WORKLOADS)} (default: all_reduce).",
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of the collective (default: 8MB).")
    ] = None,
) -> int:
    """Write a spec to begin with, every line commented: groundwire init mine.yaml --ranks 8

    On a terminal, without options, it asks.
    """
    if file.exists():
        raise FileExistsError(f"{file} exists already; name another file")
    if sys.stdin.isatty() and all(each is None for each in (fabric, ranks, rate, workload, size)):
        fabric = FabricKind(_asked("fabric", list(FabricKind), FabricKind.fat_tree))
        ranks = typer.prompt("ranks", default=16, type=int)
        rate = typer.prompt("rate of links", default="100Gbps")
        workload = _asked("workload", list(WORKLOADS), WORKLOADS[0])
    if workload is not None and workload not in WORKLOADS:
        hint = suggestion(workload, list(WORKLOADS))
        raise NoWorkload(f"--workload {workload}: {hint}allowed: {', '.join(WORKLOADS)}")
    text = spec_text(
        file,
        fabric or FabricKind.fat_tree,
        ranks or 16,
        rate or "100Gbps",
        workload or WORKLOADS[0],
        size,
    )
    parse_spec(text, str(file)).plan  # noqa: B018  it raises where a value given is wrong
    file.write_text(text)
    print(f"{file} is written; run it with: {command()} run {file}")
    return 0


def spec_text(
    file: Path, fabric: FabricKind, ranks: int, rate: str, workload: str, size: str | None
) -> str:
    """The commented spec: a fabric with at least a host for each rank, and the workload on it, of
    which every rank has an equal part."""
    keys, hosts = _fabric(fabric, ranks)
    if workload == "dlrm":
        does = "  kind: dlrm  # a step of training: all-to-alls and all-reduces"
        if _DLRM.batch_size * _DLRM.sparse_features * _DLRM.embedding_dimension % ranks:
            features = _multiple(_DLRM.sparse_features, ranks)
            does += f"\n  sparse_features: {features}  # a multiple of the ranks"
    else:
        size = size or format_size(_multiple(8_000_000, _ITEM_BYTES * ranks))
        does = f"  kind: collectives\n  operations: [{{kind: {workload}, size: {size}}}]"
    article = "A" if fabric is not FabricKind.flat else "One switch, a"
    return _TEMPLATE.format(
        command=command(),
        reference=page("spec.md"),
        title=f"{article} {fabric.value} fabric of {hosts} hosts",
        file=file,
        name=file.stem,
        fabric=fabric.value,
        size="\n".join(f"  {line}" for line in keys),
        rate=rate,
        workload=does,
        ranks=ranks,
    )


def _multiple(least: int, of: int) -> int:
    return -(-least // of) * of


def _asked(what: str, allowed: list[str], default: str) -> str:
    while True:
        answer: str = typer.prompt(f"{what} ({', '.join(allowed)})", default=default)
        if answer in allowed:
            return answer


def _fabric(kind: FabricKind, ranks: int) -> tuple[list[str], int]:
    """The keys of the smallest fabric of a kind that has a host for each rank, and its hosts."""
    match kind:
        case FabricKind.flat:
            return [f"hosts: {ranks}"], ranks
        case FabricKind.leaf_spine:
            leaves = max(2, math.isqrt(ranks))
            hosts = -(-ranks // leaves)
            spines = max(1, hosts // 2)
            return [
                f"leaves: {leaves}",
                f"spines: {spines}",
                f"hosts_per_leaf: {hosts}",
            ], leaves * hosts
        case FabricKind.torus:
            rows = max(2, math.isqrt(ranks))
            columns = max(2, -(-ranks // rows))
            return [f"dims: [{columns}, {rows}]"], rows * columns
        case FabricKind.fat_tree:
            k = next(k for k in range(4, 27, 2) if k**3 // 4 >= ranks)
            return [f"k: {k}  # ports of a switch"], k**3 // 4

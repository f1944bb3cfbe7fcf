"""`groundwire trace obfuscate` and `synthesize`: traces that can be given away."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from analysis.chakra.disguise.inferred import inferred
from analysis.chakra.disguise.obfuscate import obfuscated
from analysis.chakra.disguise.statistics import learn
from analysis.chakra.errors import ChakraError
from analysis.chakra.files import write_graphs
from analysis.chakra.graph import Graph
from analysis.chakra.sources.read import read_workload
from analysis.chakra.summary import problems
from groundwire.commands.console.outcome import outcome
from groundwire.commands.traces.options import DeviceChoice, DeviceOption, GroupsOption
from topologies.spec.compute_section import ComputeSpec

_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_OutOption = Annotated[
    Path, typer.Option(metavar="PREFIX", help="Write Chakra files PREFIX.RANK.et.")
]


@outcome
def obfuscate(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The traces, as `trace import` takes them.")
    ],
    out: _OutOption,
    device: DeviceOption = DeviceChoice.V100,
    groups: GroupsOption = None,
    as_json: _JsonOption = False,
) -> int:
    """Keep communication and timing, and nothing else; say what these still tell.

    Names, ids, tags, starts, operations and bytes of memory go, and so does where one computation
    ends and the next begins. Groups, sizes and durations stay: a replay takes the same time.
    """
    graphs = _read(path, device, groups)
    try:
        made = obfuscated(graphs)
    except ValueError as error:
        raise ChakraError(path, None, str(error)) from None
    return _write(path, out, made, as_json)


@outcome
def synthesize(
    corpus: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Traces of one model at several sizes."),
    ],
    out: _OutOption,
    ranks: Annotated[int, typer.Option(min=2, max=65_536, metavar="N", help="Ranks to make.")],
    inner: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Ranks of an inner group, neighbours, such as tensor-parallel ones (default: as "
            "in the corpus).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of what is drawn.")] = 1,
    device: DeviceOption = DeviceChoice.V100,
    groups: GroupsOption = None,
    as_json: _JsonOption = False,
) -> int:
    """Learn from traces, and make one of another size; say what it tells.

    Ranks run alike, and traces differ in how many there are. Sizes and times of each step follow
    a law of the ranks that is fitted to the corpus; what single ranks are off by is drawn by the
    seed.
    """
    read = {str(path): _read(path, device, groups) for path in corpus}
    try:
        model = learn(read)
        made = model.draw(ranks, inner or model.inner or 1, seed)
    except ValueError as error:
        raise ChakraError(corpus[0], None, str(error)) from None
    return _write(corpus[0], out, made, as_json)


def _read(path: Path, device: DeviceChoice, groups: Path | None) -> tuple[Graph, ...]:
    read = read_workload(path, ComputeSpec.model_validate({"device": device.value}), groups)
    if not read.complete:
        raise ChakraError(path, None, "is one rank's: give the PREFIX of all ranks")
    if wrong := problems(read.graphs):
        raise ChakraError(path, None, wrong[0])
    return read.graphs


def _write(source: Path, out: Path, graphs: Sequence[Graph], as_json: bool) -> int:
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        written = write_graphs(out, graphs)
    except ValueError as error:
        raise ChakraError(source, None, str(error)) from error
    told = inferred(graphs)
    if as_json:
        nodes = sum(map(len, graphs))
        print(json.dumps({"ranks": len(graphs), "nodes": nodes, "inferred": list(told)}, indent=1))
    else:
        print("What a reader can still tell:")
        for sentence in told:
            print(f"- {sentence}")
    print(f"wrote {len(written)} traces, {written[0]} ...", file=sys.stderr)
    return 0

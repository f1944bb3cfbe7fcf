"""`groundwire trace replay`: Chakra execution traces, run with real Gloo on a fabric."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from analysis.chakra.errors import ChakraError
from analysis.chakra.sources.read import read_workload
from groundwire.commands.console.outcome import outcome
from groundwire.commands.console.overrides import parse_overrides
from groundwire.commands.console.report_style import ReportStyle
from groundwire.commands.run import (
    JsonOption,
    KernelChoice,
    KernelOption,
    OutOption,
    SetOption,
    StyleOption,
    run_and_print,
)
from groundwire.commands.traces.options import (
    DeviceChoice,
    DeviceOption,
    GroupsOption,
    MemoryHostsOption,
    MemoryOption,
    memory_of,
)
from topologies.spec.spec import load_spec, parse_dict


@outcome
def replay(
    prefix: Annotated[
        Path,
        typer.Argument(metavar="PREFIX", help="The traces: PREFIX.RANK.et of every rank."),
    ],
    on: Annotated[
        Path | None,
        typer.Option(
            metavar="SPEC",
            help="The spec on whose fabric to replay, in place of its workload (default: a host "
            "for each rank on one switch of 100 Gb/s).",
        ),
    ] = None,
    groups: GroupsOption = None,
    memory: MemoryOption = None,
    memory_hosts: MemoryHostsOption = 1,
    device: DeviceOption = DeviceChoice.V100,
    kernel: KernelOption = KernelChoice.auto,
    out: OutOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
    style: StyleOption = ReportStyle.groundwire,
) -> int:
    """Run traces with real Gloo: compute nodes sleep, communication nodes communicate.

    Dependencies are kept. This is `groundwire run` of a spec with `workload: {kind: chakra, path:
    PREFIX}`; --set changes the keys of that spec (--set workload.iterations=3). With --on, its
    compute section is the device.
    """
    path = prefix.resolve()
    workload: dict[str, object] = {"kind": "chakra", "path": str(path)}
    behind = memory_of(memory, memory_hosts)
    if groups is not None:
        workload["groups"] = str(groups.resolve())
    if behind is not None:
        workload["memory"] = behind.model_dump(mode="json", by_alias=True)
    if on is None:
        read = read_workload(path, groups=groups, memory=behind)
        if not read.complete:
            raise ChakraError(path, None, "is one rank's: give the PREFIX of all ranks")
        fabric = {"kind": "flat", "hosts": len(read.graphs), "link": _LINK}
        compute = {"device": device.value}
        raw = {"name": prefix.name, "fabric": fabric, "workload": workload, "compute": compute}
        spec = parse_dict(raw)
    else:
        texts = {"workload": json.dumps(workload)}
        spec = load_spec(on).with_overrides(texts, source=str(prefix))
    spec = spec.with_overrides(parse_overrides(set_ or []), source="--set")
    return run_and_print(spec, kernel, out, as_json=as_json, style=style)


_LINK = {"rate": "100Gbps", "delay": "500ns", "mtu": 9000}

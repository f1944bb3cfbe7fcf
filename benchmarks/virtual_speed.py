"""How fast the virtual kernel is, beside ns-3 on the same flows over the same fabric.

    .venv/bin/python benchmarks/virtual_speed.py [--ranks 8,32,64] [--iterations 4] [--json]

A star (one switch) of 100 Gb/s links of 1 us, MTU 9000; per iteration an all-reduce and an
all-to-all of 8 MB on every rank. For the virtual kernel: wall seconds of the whole command (boot,
import of torch, fabric, collectives), packet-hops that the ports counted, and packet-hops per wall
second of all that. For ns-3 (C++, driven by the predictor "ns3"): the wall seconds of its event
loop alone for the same messages and its events. Its packet-hops are taken to be the virtual
kernel's: same payload, MTU and paths; acknowledgements may differ.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from analysis.predictors.interface import CollectiveCall, PredictorError
from analysis.predictors.ns3 import Ns3
from analysis.predictors.planned import setting_of_spec
from emulator.commands.run import KernelChoice, run_spec
from topologies.spec import Spec, parse_spec

KINDS = ("all_reduce", "all_to_all")
SIZE_BYTES = 8_000_000


def star(ranks: int, iterations: int) -> Spec:
    """The spec that both run."""
    operations = [{"kind": kind, "size": f"{SIZE_BYTES}B"} for kind in KINDS]
    description = {
        "name": f"star-{ranks}",
        "fabric": {
            "kind": "flat",
            "hosts": ranks,
            "link": {"rate": "100Gbps", "delay": "1us", "mtu": 9000},
            "queue": {"kind": "droptail", "buffer": "32MB"},
        },
        "workload": {
            "kind": "collectives",
            "ranks": ranks,
            "iterations": iterations,
            "operations": operations,
        },
        "compute": {"device": "none"},
        "capture": {"points": []},
        "predict": [],
    }
    return parse_spec(json.dumps(description), f"star-{ranks}")


def virtual(spec: Spec, directory: Path, console: Console) -> dict[str, Any]:
    """One run on the virtual kernel: wall seconds and packet-hops."""
    result: Any = run_spec(spec, KernelChoice.virtual, directory, console)
    lines = (directory / "links.jsonl").read_text().splitlines()
    return {
        "valid": result["valid"],
        "wall_s": result["wall_s"],
        "packet_hops": sum(json.loads(line)["packets"] for line in lines),
    }


def ns3(spec: Spec, iterations: int) -> dict[str, Any]:
    """The same collectives in ns-3, one simulation each: wall seconds and events of the loops."""
    simulator = Ns3()
    setting = setting_of_spec(spec)
    wall_s, events = 0.0, 0
    for kind in KINDS:
        call = CollectiveCall(kind, SIZE_BYTES, tuple(range(len(setting.hosts))))
        simulator.predict(setting, call)
        wall_s += iterations * simulator.last_run["wall_s"]
        events += iterations * simulator.last_run["events"]
    return {"ns3_wall_s": wall_s, "ns3_events": events}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="8,32,64")
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    progress = Console(stderr=True)
    rows = []
    for ranks in map(int, arguments.ranks.split(",")):
        spec = star(ranks, arguments.iterations)
        with tempfile.TemporaryDirectory() as scratch:
            row = {"ranks": ranks, **virtual(spec, Path(scratch) / "run", progress)}
        row["hops_per_s"] = row["packet_hops"] / row["wall_s"]
        try:
            row |= ns3(spec, arguments.iterations)
            row["ns3_hops_per_s"] = row["packet_hops"] / row["ns3_wall_s"]
            row["ratio"] = row["hops_per_s"] / row["ns3_hops_per_s"]
        except PredictorError as error:
            progress.print(f"ns-3, {ranks} ranks: {error}")
        rows.append(row)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("ranks", title=f"{platform.processor() or platform.machine()}, star, 100 Gb/s")
    for heading in ("valid", "wall s", "packet-hops", "hops/s", "ns-3 wall s", "hops/s", "ratio"):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [f"{row['wall_s']:.1f}", f"{row['packet_hops']:,}", f"{row['hops_per_s']:,.0f}"]
        if "ratio" in row:
            cells += [f"{row['ns3_wall_s']:.1f}", f"{row['ns3_hops_per_s']:,.0f}"]
            cells += [f"{row['ratio']:.2f}"]
        table.add_row(str(row["ranks"]), str(row["valid"]), *cells)
    Console().print(table)


if __name__ == "__main__":
    main()

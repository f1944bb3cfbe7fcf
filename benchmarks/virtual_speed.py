"""How fast the virtual kernel is, beside ns-3 on the same flows over the same fabric.

    .venv/bin/python benchmarks/virtual_speed.py [--ranks 8,32,64,128] [--per-process 1,all]
        [--iterations 4] [--coalescing 8us] [--payload timing] [--mtu 1500] [--no-ns3] [--json]

A star (one switch) of 100 Gb/s links of 1 us; per iteration an all-reduce and an
all-to-all of 8 MB on every rank. For the virtual kernel: wall seconds of the whole command (boot,
import of torch, fabric, collectives, report) and of its part before the first collective;
packet-hops that the ports counted, and how many per wall second of the whole; microseconds per
packet-hop after the first collective began; system calls that the guest made per packet-hop;
switches between its processes; processor seconds of all that ended; and by how much the memory that
this machine has available fell. With several numbers of ranks per process (`all`: one process), a
run's collectives must take what they took in the first of them, and `beside` is that one's wall
time, and its processor time, divided by the run's. For ns-3 (C++, driven by the predictor
"ns3") and the same messages: the wall seconds of its event loop, and with its start and the making
of the fabric. Its packet-hops are taken to be the virtual kernel's: same payload, MTU and paths;
acknowledgements may differ. Like is compared with like: its loop with what comes after our first
collective began, the whole with the whole; above 1 the virtual kernel is the faster.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from analysis.predict.models.ns3 import Ns3
from analysis.predict.setting import setting_of_spec
from analysis.report.finish import finish_run
from analysis.results.result import write_result
from analysis.runs.run import load_run
from collectives.call import CollectiveCall, CollectiveError
from emulator.progress import Progress
from emulator.session import run_session
from emulator.virtual.memory.host_memory import available_memory
from topologies.spec.spec import Spec, parse_spec

KINDS = ("all_reduce", "all_to_all")
SIZE_BYTES = 8_000_000
_MEMORY_SAMPLE_S = 0.2


def star(arguments: argparse.Namespace, ranks: int, per_process: int) -> Spec:
    """The spec that both run."""
    operations = [{"kind": kind, "size": f"{SIZE_BYTES}B"} for kind in KINDS]
    description = {
        "name": f"star-{ranks}",
        "fabric": {
            "kind": "flat",
            "hosts": ranks,
            "link": {"rate": "100Gbps", "delay": "1us", "mtu": arguments.mtu},
            "queue": {"kind": "droptail", "buffer": "32MB"},
        },
        "workload": {
            "kind": "collectives",
            "ranks": ranks,
            "iterations": arguments.iterations,
            "operations": operations,
        },
        "compute": {"device": "none"},
        "capture": {"points": []},
        "predict": [],
        "payload": arguments.payload,
        "virtual": {
            "receive_coalescing": arguments.coalescing,
            "ranks_per_process": per_process,
        },
    }
    return parse_spec(json.dumps(description), f"star-{ranks}")


def virtual(spec: Spec, directory: Path, console: Console) -> dict[str, Any]:
    """One run on the virtual kernel, as `groundwire run` does it."""
    started = time.monotonic()
    first: list[float] = []

    def report(progress: Progress) -> None:
        if progress.stage == "iteration" and not first:
            first.append(time.monotonic() - started)
        if progress.stage != "clock":
            elapsed_s = time.monotonic() - started
            console.print(f"{elapsed_s:7.1f} s  {progress.stage} {progress.detail}")

    before_s = _processor_s()
    with _peak_memory() as used:
        run_session(spec, "virtual", directory, report)
        result: Any = write_result(load_run(directory))
        finish_run(load_run(directory))
    wall_s = time.monotonic() - started
    lines = (directory / "links.jsonl").read_text().splitlines()
    packet_hops = sum(json.loads(line)["packets"] for line in lines)
    stops = json.loads((directory / "environment.json").read_text())["stops"]
    return {
        "valid": result["valid"],
        "wall_s": wall_s,
        "processor_s": _processor_s() - before_s,
        "durations_ns": [row["duration_ns"] for row in result["collectives"]],
        "first_collective_s": first[0],
        "packet_hops": packet_hops,
        "hops_per_s": packet_hops / wall_s,
        "us_per_hop": 1e6 * (wall_s - first[0]) / packet_hops,
        "calls_per_hop": stops["calls"] / packet_hops,
        "stops": stops,
        "peak_bytes": used[0],
    }


def _processor_s() -> float:
    """Processor seconds of this process and of its descendants that were waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@contextmanager
def _peak_memory() -> Iterator[list[int]]:
    """By how much the available memory fell at most, in bytes; the list's one element."""
    before = available_memory().size_bytes
    used = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_MEMORY_SAMPLE_S):
            used[0] = max(used[0], before - available_memory().size_bytes)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield used
    finally:
        done.set()
        thread.join()


def _processor() -> str:
    found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cores = f"{len(os.sched_getaffinity(0))} cores of {found[1] if found else 'unknown'}"
    return ", ".join([cores, *_caches()])


def _caches() -> Iterator[str]:
    """The first core's caches, as Linux names them (sysfs-devices-system-cpu)."""
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (cache / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            yield f"L{level} {size}"


def ns3(spec: Spec, iterations: int) -> dict[str, Any]:
    """The same collectives in ns-3, of each kind one simulation whose loop counts `iterations`
    times: wall seconds and events of the loops, and wall seconds with the dearer of the starts."""
    simulator = Ns3()
    setting = setting_of_spec(spec)
    loop_s, start_s, events = 0.0, 0.0, 0
    for kind in KINDS:
        call = CollectiveCall(kind, SIZE_BYTES, tuple(range(len(setting.hosts))))
        started = time.monotonic()
        simulator.predict(setting, call)
        once_s = simulator.last_run["wall_s"]
        start_s = max(start_s, time.monotonic() - started - once_s)
        loop_s += iterations * once_s
        events += iterations * simulator.last_run["events"]
    return {"ns3_wall_s": start_s + loop_s, "ns3_loop_s": loop_s, "ns3_events": events}


def _beside_ns3(
    spec: Spec, arguments: argparse.Namespace, row: dict[str, Any], progress: Console
) -> dict[str, Any]:
    if arguments.no_ns3:
        return {}
    try:
        found = ns3(spec, arguments.iterations)
    except CollectiveError as error:
        progress.print(f"ns-3, {row['ranks']} ranks: {error}")
        return {}
    found["loop_ratio"] = found["ns3_loop_s"] / (row["wall_s"] - row["first_collective_s"])
    found["whole_ratio"] = found["ns3_wall_s"] / row["wall_s"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="8,32,64,128")
    parser.add_argument(
        "--per-process", default="1", help="ranks that are threads of one process: numbers, or all"
    )
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument(
        "--coalescing", default="0ns", help="hold received packets so long (0ns: do not)"
    )
    parser.add_argument("--payload", choices=("checked", "timing"), default="checked")
    parser.add_argument("--mtu", type=int, default=9000)
    parser.add_argument("--no-ns3", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    progress = Console(stderr=True)
    rows = []
    for ranks in map(int, arguments.ranks.split(",")):
        first: dict[str, Any] | None = None
        for asked in arguments.per_process.split(","):
            per_process = ranks if asked == "all" else int(asked)
            spec = star(arguments, ranks, per_process)
            row: dict[str, Any] = {"ranks": ranks, "per_process": per_process}
            with tempfile.TemporaryDirectory() as scratch:
                row |= virtual(spec, Path(scratch) / "run", progress)
            if first is None:
                first = row
                row |= _beside_ns3(spec, arguments, row, progress)
            else:
                row["same_durations"] = row["durations_ns"] == first["durations_ns"]
                row["wall_ratio"] = first["wall_s"] / row["wall_s"]
                row["processor_ratio"] = first["processor_s"] / row["processor_s"]
            rows.append(row)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(
        "ranks",
        "per process",
        title=f"{_processor()}; star, 100 Gb/s, MTU {arguments.mtu}, {arguments.payload} payload",
    )
    for heading in (
        "valid", "wall s", "cpu s", "to first s", "packet-hops", "hops/s", "us/hop after",
        "calls/hop", "switches", "peak GB", "beside: wall, cpu", "same ns",
        "ns-3 loop s", "ratio", "ns-3 whole s", "ratio",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [
            f"{row['wall_s']:.1f}",
            f"{row['processor_s']:.1f}",
            f"{row['first_collective_s']:.1f}",
            f"{row['packet_hops']:,}",
            f"{row['hops_per_s']:,.0f}",
            f"{row['us_per_hop']:.1f}",
            f"{row['calls_per_hop']:.2f}",
            f"{row['stops']['switches']:,}",
            f"{row['peak_bytes'] / 1e9:.1f}",
        ]
        if "wall_ratio" in row:
            cells += [f"{row['wall_ratio']:.2f}, {row['processor_ratio']:.2f}"]
            cells += [str(row["same_durations"])]
        elif "loop_ratio" in row:
            cells += ["", ""]
        if "loop_ratio" in row:
            cells += [f"{row['ns3_loop_s']:.1f}", f"{row['loop_ratio']:.2f}"]
            cells += [f"{row['ns3_wall_s']:.1f}", f"{row['whole_ratio']:.2f}"]
        numbers = str(row["ranks"]), str(row["per_process"])
        table.add_row(*numbers, str(row["valid"]), *cells)
    Console(width=None if sys.stdout.isatty() else 240).print(table)


if __name__ == "__main__":
    main()

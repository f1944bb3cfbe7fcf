"""What several kernels measured of one run, put together to what one would have written.

Each kernel leaves `kernel-INDEX/` in the run directory, with those files in it that a kernel alone
leaves in the run directory itself.
"""

from __future__ import annotations

import heapq
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from emulator.capture.capture import INDEX_FILE
from topologies.division import Division
from topologies.fabric import Fabric
from topologies.selectors import select_ports

_SAME = ("kernel_release", "versions", "seed", "hosts", "details")
"""What each kernel says alike, having run the same spec."""


def part_directory(run_directory: Path, kernel: int) -> Path:
    """Where a kernel leaves what it measured."""
    return run_directory / f"kernel-{kernel}"


def merge_parts(
    run_directory: Path, fabric: Fabric, division: Division, points: Sequence[str]
) -> None:
    """Make measured.json, links.jsonl, queues.jsonl and the index of captures (at `points`) from
    those of a run's kernels, whose directories are then removed.

    Raises OSError when a file is not there, ValueError when they do not fit together.
    """
    parts = [part_directory(run_directory, kernel) for kernel in range(division.kernels)]
    counted = [(part / "links.jsonl").read_text().splitlines() for part in parts]
    links = merged_links([map(json.loads, lines) for lines in counted], fabric, division)
    text = "".join(f"{json.dumps(line)}\n" for line in links)
    (run_directory / "links.jsonl").write_text(text)
    if all((part / "queues.jsonl").exists() for part in parts):
        with ExitStack() as files:  # there may be millions of lines
            samples = [files.enter_context((part / "queues.jsonl").open()) for part in parts]
            merged = files.enter_context((run_directory / "queues.jsonl").open("w"))
            merged.writelines(merged_samples(samples, fabric, division))
    measured = [json.loads((part / "measured.json").read_text()) for part in parts]
    captured = [p.interface for point in points for p in select_ports(fabric, point)]
    whole = merged_measurements(measured, captured)
    (run_directory / "measured.json").write_text(json.dumps(whole, indent=1) + "\n")
    index = run_directory / "capture" / INDEX_FILE
    if index.exists():
        told = json.loads(index.read_text()) | {"captures": whole["captures"]}
        index.write_text(json.dumps(told, indent=1) + "\n")
    (parts[0] / "hosts").replace(run_directory / "ranks" / "hosts")  # the same in all
    for part in parts:
        shutil.rmtree(part)


def merged_links(
    parts: Sequence[Iterable[Mapping[str, Any]]], fabric: Fabric, division: Division
) -> list[dict[str, Any]]:
    """Lines of links.jsonl by link and end, from those of each kernel.

    A port of a link that is cut is counted twice: by the kernel that has its node, and by the one
    to which its packets go, where devices may lose some after the port has sent them. Raises
    ValueError when a port's own kernel has not counted it.
    """
    own: dict[str, Mapping[str, Any]] = {}
    lost_elsewhere: dict[str, int] = {}
    for kernel, lines in enumerate(parts):
        for line in lines:
            port = line["port"]
            if division.kernel_of[line["node"]] == kernel:
                own[port] = line
            else:
                lost_elsewhere[port] = lost_elsewhere.get(port, 0) + line["lost_outside_queue"]
    merged = []
    for link in fabric.links:
        for port in (link.a.interface, link.b.interface):
            if port not in own:
                raise ValueError(f"no kernel has counted what port {port} sent")
            lost = own[port]["lost_outside_queue"] + lost_elsewhere.get(port, 0)
            merged.append({**own[port], "lost_outside_queue": lost})
    return merged


def merged_samples(
    parts: Sequence[Iterable[str]], fabric: Fabric, division: Division
) -> Iterator[str]:
    """Lines of queues.jsonl by node, from those of each kernel, which are by node already; those of
    a node stay in their order."""
    position = {node.name: index for index, node in enumerate(fabric.nodes)}
    place_of = {
        port.interface: (position[port.node], division.kernel_of[port.node])
        for link in fabric.links
        for port in (link.a, link.b)
    }

    def own(kernel: int, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        for line in lines:
            node, owner = place_of[json.loads(line)["port"]]
            if owner == kernel:
                yield node, line

    streams = [own(kernel, lines) for kernel, lines in enumerate(parts)]
    for _, line in heapq.merge(*streams, key=lambda entry: entry[0]):
        yield line


def merged_measurements(
    parts: Sequence[Mapping[str, Any]], captured: Sequence[str]
) -> dict[str, Any]:
    """measured.json from that of each kernel; `captured` are the interfaces with a capture, in its
    order. Valid only if every kernel's is. Raises ValueError when kernels do not agree on what they
    ran."""
    whole = dict(parts[0])
    for key in _SAME:
        if any(part[key] != whole[key] for part in parts):
            raise ValueError(f"the kernels of the run do not agree on {key}")
    captures = {one["interface"]: one for part in parts for one in part["captures"]}
    verdicts = [part["verdict"] for part in parts]
    names = verdicts[0]["samples"]
    return whole | {
        "retransmits": sum(part["retransmits"] for part in parts),
        "captures": [captures[interface] for interface in dict.fromkeys(captured)],
        "verdict": {
            "valid": all(verdict["valid"] for verdict in verdicts),
            "reasons": list(dict.fromkeys(r for verdict in verdicts for r in verdict["reasons"])),
            "samples": {name: _total([v["samples"][name] for v in verdicts]) for name in names},
        },
        "faults": [fault for part in parts for fault in part["faults"]],
    }


def _total(figures: Sequence[int | None]) -> int | None:
    """Of what kernels in virtual time count, packets that were lost; the rest they cannot tell."""
    counted = [figure for figure in figures if figure is not None]
    return sum(counted) if counted else None

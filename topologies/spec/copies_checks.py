"""Checks of a spec whose servers copy memory over their scale-up links (`fabric.scale_up`)."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.fabrics.copies import CopyPaths
from topologies.fabrics.fabric import Fabric
from topologies.spec.errors import Problem
from topologies.spec.run_sections import links_of_fault
from topologies.spec.sections import Sections

_KEY = ("fabric", "scale_up", "kind")


def copies_problems(spec: Sections, fabric: Fabric) -> Iterator[Problem]:
    """The keys of the rest of a spec that there are not with copies."""
    paths = CopyPaths.of(fabric)
    if paths is None:
        return
    found = "copies"
    if spec.collectives.backend == "gloo":
        expected = (
            "expected packets, or collectives.backend: nccl or programs: what Gloo sends is packets"
        )
        yield Problem(_KEY, found, expected)
    if spec.workload.program is not None:
        expected = "expected packets with workload.kind: command: scripts' messages are packets"
        yield Problem(_KEY, found, expected)
    if spec.host.charged:
        yield Problem(
            ("host",),
            spec.host.described(),
            "expected nothing with fabric.scale_up.kind: copies, which take no processor",
        )
    for index, fault in enumerate(spec.faults):
        try:
            links = links_of_fault(fabric, fault)
        except (KeyError, ValueError):  # told elsewhere
            continue
        if any(link.index in paths.links.values() for link in links):
            expected = (
                "expected a fault of no scale-up link with fabric.scale_up.kind: copies, which "
                "know no faults"
            )
            yield Problem(("faults", index, "kind"), fault.kind, expected)

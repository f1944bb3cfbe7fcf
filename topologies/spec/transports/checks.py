"""Checks of transports across the sections of a spec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache

from topologies.fabrics.fabric import Fabric
from topologies.registration import parts
from topologies.spec.errors import Problem
from topologies.spec.queue_section import trims
from topologies.spec.sections import Sections
from topologies.spec.transports import TRANSPORTS


def fabric_trims(fabric: Fabric) -> bool:
    """Whether a port of a fabric trims."""
    return any(trims(port.queue) for link in fabric.links for port in (link.a, link.b))


class TransportChecks(ABC):
    """The checks of one transport."""

    @abstractmethod
    def problems(self, spec: Sections, fabric: Fabric) -> Iterator[Problem]:
        """The disagreements of the spec's transport with its fabric and its queues."""


@cache
def _checks() -> Mapping[str, TransportChecks]:
    return parts(TRANSPORTS, "topologies.spec.transports.{}.checks", TransportChecks)


def transport_problems(spec: Sections, fabric: Fabric) -> Iterator[Problem]:
    """The disagreements of a spec's transport with the rest of it."""
    if fabric_trims(fabric) and not spec.transport.hears_of_trims:
        yield Problem(
            ("transport", "kind"),
            spec.transport.kind,
            "expected one that hears of packets that lose their payload, with ports that trim: "
            "mrc, or roce with loss_recovery: selective-repeat",
        )
    yield from _checks()[spec.transport.kind].problems(spec, fabric)

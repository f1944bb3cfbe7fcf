"""Checks of transports across the sections of a spec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache

from topologies.fabrics.fabric import Fabric
from topologies.registration import parts
from topologies.spec.errors import Problem
from topologies.spec.sections import Sections
from topologies.spec.transports import TRANSPORTS


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
    return _checks()[spec.transport.kind].problems(spec, fabric)

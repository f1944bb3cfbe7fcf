"""TCP runs on every fabric."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.fabrics.fabric import Fabric
from topologies.spec.errors import Problem
from topologies.spec.sections import Sections
from topologies.spec.transports.checks import TransportChecks


class TcpChecks(TransportChecks):
    """None."""

    def problems(self, spec: Sections, fabric: Fabric) -> Iterator[Problem]:
        """Nothing."""
        return iter(())


PART = TcpChecks()

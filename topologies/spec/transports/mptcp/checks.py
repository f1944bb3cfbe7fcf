"""Checks of MPTCP: that captures hold its options, and that ranks know their connections."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.fabrics.fabric import Fabric
from topologies.spec.errors import Problem
from topologies.spec.sections import Sections
from topologies.spec.transports.checks import TransportChecks

LEAST_SNAPLEN = 142
"""Ethernet 14, IPv4 20, TCP 60 with all the options that there is room for, and Gloo's preamble of
48."""


class MptcpChecks(TransportChecks):
    """Those of captures and of packed ranks."""

    def problems(self, spec: Sections, fabric: Fabric) -> Iterator[Problem]:
        """Captures that cut options off, and threads that are ranks: these find their connections
        in the kernel's table, which has each subflow as one."""
        if spec.capture.points and spec.capture.snaplen_bytes < LEAST_SNAPLEN:
            yield Problem(
                ("capture", "snaplen"),
                str(spec.capture.snaplen_bytes),
                f"expected at least {LEAST_SNAPLEN} with transport.kind: mptcp: its options say "
                "which bytes a packet carries",
            )
        packed = spec.virtual.ranks_per_process
        if isinstance(packed, int) and packed > 1:
            yield Problem(
                ("virtual", "ranks_per_process"),
                str(packed),
                "expected 1 or auto with transport.kind: mptcp: a thread cannot tell its "
                "connections from their subflows",
            )


PART = MptcpChecks()

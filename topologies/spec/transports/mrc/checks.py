"""Checks of the fabric under MRC."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.fabrics.fabric import Fabric
from topologies.spec.errors import Problem
from topologies.spec.queue_section import Lossless, queues_in
from topologies.spec.sections import Sections
from topologies.spec.transports.roce.checks import RoceChecks


class MrcChecks(RoceChecks):
    """Those of RoCE, and that no port pauses."""

    def problems(self, spec: Sections, fabric: Fabric) -> Iterator[Problem]:
        """As of RoCE, and lossless queues."""
        yield from super().problems(spec, fabric)
        for link in fabric.links:
            for port in (link.a, link.b):
                if any(isinstance(queue, Lossless) for queue in queues_in(port.queue)):
                    yield Problem(
                        ("fabric", "queue", "kind"),
                        "lossless",
                        "expected queues without priority flow control with transport.kind: mrc: "
                        "a pause would stop the packets of all paths",
                    )
                    return


PART = MrcChecks()

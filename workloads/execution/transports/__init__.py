"""The ends between which ranks send, by transport: each has a module here, named as
`topologies.spec.transports` registers it.

Gloo's own collectives go through sockets, which Gloo makes. A transport `of_programs` makes ends of
its own for the messages of programs. It does not say how a program is run: `programs/` does. Three
names to know: `Place` (where a rank finds what its ends need), `RankEnds` (its ends) and `Links`
(those of one group).
"""

from topologies.registration import parts
from topologies.spec.transports import TRANSPORTS
from workloads.execution.transports.interface import RankTransport

RANK_TRANSPORTS = parts(TRANSPORTS, "workloads.execution.transports.{}", RankTransport)
"""By kind."""

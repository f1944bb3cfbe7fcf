"""The time of a call beside NCCL's model: one number a source, fitted on one row of it.

On several servers it is what a step over their network takes longer than NCCL's table and the NICs'
plugin tell, as NCCL counts a plugin's latency (`latencyInter` of src/graph/tuning.cc). On one
server it is what a call takes longer to launch. ASTRA-sim's validation takes both from small
collectives of the machine at hand too (astra-sim.github.io, validation/hardware, recommended
practices).
"""

from __future__ import annotations

from collections.abc import Mapping

FITTED_ON: Mapping[str, str] = {
    "d02": "d02.01",
    "d06": "d06.01",
    "d09": "d09.01",
    "d10": "d10.01",
    "d12": "d10.01",
    "d11": "d11.01",
    "d07": "d11.01",
    "d35a2": "d35a2.01",
    "d35a4": "d35a2.01",
    "d35a8": "d35a2.01",
}
"""The row on which a table's number is fitted, its smallest size; tables without one have none.
d07 has the network of d11 (GPUDirect-TCPXO on A3 Mega), d12 that of d10 (Nebius's InfiniBand).
d01 is of the source of d02, on another network, for which what its plugin tells stands."""

FITTED = frozenset(FITTED_ON.values())
"""The rows that are fitted on; all others are held out."""

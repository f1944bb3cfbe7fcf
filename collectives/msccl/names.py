"""How MSCCL names collectives, buffers and instructions (msccl-tools, msccl/language/ir.py)."""

from __future__ import annotations

from collectives.kinds import Kind
from collectives.program import Buffer

COLLECTIVES = {
    Kind.ALL_REDUCE: "allreduce",
    Kind.ALL_GATHER: "allgather",
    Kind.REDUCE_SCATTER: "reduce_scatter",
    Kind.ALL_TO_ALL: "alltoall",
    Kind.BROADCAST: "broadcast",
    Kind.REDUCE: "reduce",
}
BUFFERS = {Buffer.INPUT: "i", Buffer.OUTPUT: "o", Buffer.SCRATCH: "s"}

INSTRUCTIONS = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")
"""Send; receive; receive, copy and send on; receive, reduce and send on; receive, reduce and keep;
receive, reduce, keep and send on; copy; reduce; nothing but wait."""

SENDING = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVING = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})

MAX_STEPS = 256
"""Steps of one thread block (MSCCL_MAX_NUM_STEPS in msccl.h)."""
MAX_THREAD_BLOCKS = 216
"""Thread blocks of one GPU (MSCCL_MAX_NUM_THREAD_BLOCKS in msccl.h)."""

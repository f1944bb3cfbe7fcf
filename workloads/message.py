"""A message from one rank of the run to another, posted on either of them."""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist

from topologies.workload_spec import ITEM_BYTES, Dtype
from workloads import payload
from workloads.communicator import Communicator
from workloads.operations import DTYPES
from workloads.pending import Pending


def post_message(
    world: Communicator,
    id: str,
    phase: str,
    iteration: int,
    ends: tuple[int, int],
    size_bytes: int,
    dtype: Dtype,
    tag: int = 0,
) -> Pending:
    """`ends` are source and destination; where the message arrives, its payload is checked when it
    is waited for."""
    source, destination = ends
    sends = world.rank == source
    count, codes = (
        max(size_bytes // ITEM_BYTES[dtype], 1),
        [payload.block_code(source, destination)],
    )
    torch_dtype = DTYPES[dtype]
    if sends:
        buffer = payload.blocks(count, codes, torch_dtype)
    else:
        buffer = torch.empty(count, dtype=torch_dtype)
    call, peer = (dist.isend, destination) if sends else (dist.irecv, source)
    return world.post(
        id,
        "send_recv",
        phase,
        size_bytes,
        iteration,
        lambda group: call(buffer, peer, group=group, tag=tag),
        None if sends else partial(payload.check_blocks, id, buffer, codes),
        counted=False,
        has_future=False,
        members=ends,
        element_bytes=ITEM_BYTES[dtype],
        root=0,
        peer=1,
    )

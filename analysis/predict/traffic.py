"""The bytes that a collective sends from rank to rank."""

from __future__ import annotations

import numpy as np

from analysis.predict.engines.wire import Ints
from collectives.call import CollectiveCall


def bytes_between(call: CollectiveCall, ranks: int, seed: int) -> Ints:
    """Payload by source and destination, shape (ranks, ranks), as the call's schedule has it; what
    switches send or receive is left out. Raises CollectiveError."""
    found = np.zeros((ranks, ranks), dtype=np.int64)
    numbers = np.array(call.ranks, dtype=np.int64)
    for post in call.posts(seed):
        # Others are a switch's.
        mine = np.maximum(post.source, post.destination) < call.world
        ends = numbers[post.source[mine]], numbers[post.destination[mine]]
        np.add.at(found, ends, post.size_bytes[mine])
    return found

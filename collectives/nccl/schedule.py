"""A collective as NCCL runs it, as a schedule of programs."""

from __future__ import annotations

from dataclasses import replace

from collectives.algorithms.nccl import Nccl
from collectives.chunking import Chunking, cut
from collectives.in_network.node import Aggregator
from collectives.kinds import Kind, Shape
from collectives.nccl.communicator import Communicator
from collectives.nccl.switches import multicast_of
from collectives.nccl.tuner import FUNCTION_OF, Choice, Tuner
from collectives.schedule.program import ProgramSchedule

MOST_MESSAGES = 16_000
"""Messages of a program at most: beyond, chunks are longer than NCCL's, so that there are fewer."""


def nccl_schedule(
    tuner: Tuner, shape: Shape, chunking: Chunking, switches: tuple[Aggregator, ...] = ()
) -> ProgramSchedule:
    """The schedule of a collective; `switches` are those of the servers, where they reduce. A rank
    takes the tuner's latency of an NVLink step for each message, unless the chunking has a delay of
    its own; with NVLS the switches take it. Raises DoesNotFit."""
    algorithm, step_ns = nccl_algorithm(tuner, shape, switches)
    delay_ns = chunking.endpoint_delay_ns or step_ns
    return cut(shape, algorithm, replace(chunking, endpoint_delay_ns=delay_ns, chunks=1))


def nccl_algorithm(
    tuner: Tuner, shape: Shape, switches: tuple[Aggregator, ...] = ()
) -> tuple[Nccl, int]:
    """The algorithm that NCCL chooses, and what a GPU takes for each message in ns."""
    if shape.kind not in FUNCTION_OF:
        return _all_to_all(tuner, shape)
    choice = tuner.choose(shape.kind, shape.size_bytes)
    comm = tuner.communicator
    channels = choice.channels
    if choice.by_switches:
        multicast = multicast_of(comm, switches)
        loops, _ = _cut(choice, shape, comm, "nvls")
        found = Nccl(
            way="nvls",
            loops=loops,
            ahead=choice.ahead,
            multicast=multicast,
            multicast_channels=channels,
        )
        return found, 0
    way = {"Ring": "ring", "Tree": "tree", "PAT": "pat"}[choice.algorithm]
    loops, slices = _cut(choice, shape, comm, way)
    rings = comm.rings[:channels] if way != "tree" else ()
    trees = comm.trees[:channels] if way == "tree" else ()
    ahead = choice.ahead
    found = Nccl(way=way, rings=rings, trees=trees, loops=loops, slices=slices, ahead=ahead)
    return found, choice.step_ns


def _cut(choice: Choice, shape: Shape, comm: Communicator, way: str) -> tuple[int, int]:
    """Chunks of a channel, and their slices, within MOST_MESSAGES."""
    if way == "pat":
        return 1, 1
    ranks = comm.size
    in_parts = shape.kind in _IN_PARTS
    # Parts of a channel that are chunked, and the messages of a loop over all channels.
    match way:
        case "ring" if in_parts:
            parts = ranks
            steps = (ranks - 1) * (2 if shape.kind is Kind.ALL_REDUCE else 1) * ranks
        case "nvls" if shape.kind is Kind.ALL_REDUCE:
            parts = len(comm.nvls_heads)
            steps = 2 * parts * (ranks + 2 * comm.nodes)
        case "nvls":
            parts = ranks
            steps = parts * (ranks + 1)
        case _:
            parts, steps = 1, ranks * (2 if way == "tree" else 1)
    loops = max(1, -(-shape.size_bytes // (choice.channels * parts * choice.chunk_bytes)))
    slices = choice.slices
    each = choice.channels * steps
    if each * loops * slices > MOST_MESSAGES:
        slices = 1
    return max(1, min(loops, MOST_MESSAGES // (each * slices))), slices


def _all_to_all(tuner: Tuner, shape: Shape) -> tuple[Nccl, int]:
    """Grouped sends (addP2pToPlan of src/enqueue.cc): a message goes over as many channels as its
    size fills."""
    comm, environment = tuner.communicator, tuner.environment
    several = comm.nodes > 1
    name = "NCCL_P2P_NET_CHUNKSIZE" if several else "NCCL_P2P_NVL_CHUNKSIZE"
    step = environment.number(name, 1 << (17 if several else 19))
    least, most = (step // 2, step) if several else (step // 8, step * 32)
    size = max(1, shape.shard_bytes)
    per_peer = comm.p2p_channels_per_peer
    at_least = per_peer
    while at_least * comm.size > comm.p2p_channels and at_least > 1:
        at_least //= 2
    parts = min(at_least, -(-size // least))
    each = max(least, -(-size // parts))
    while each > most and parts <= per_peer // 2:
        parts *= 2
        each = -(-size // parts)
    rings = comm.rings[:1] * parts
    protocol = "LL" if size <= environment.number("NCCL_P2P_LL_THRESHOLD", 16384) else "Simple"
    column = 0 if protocol == "LL" else 2
    step_ns = round(tuner.tables.nvlink_latency["Ring"][column] * 1000)
    return Nccl(way="p2p", rings=rings, p2p_channels=comm.p2p_channels), step_ns


_IN_PARTS = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER)

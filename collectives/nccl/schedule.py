"""A collective as NCCL runs it, as a schedule of programs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from collectives.algorithms.nccl import Nccl
from collectives.chunking import Chunking, cut
from collectives.kinds import Kind, Shape
from collectives.nccl.communicator import Communicator
from collectives.nccl.division import COLLNET, LINES
from collectives.nccl.switches import Switches, collnet_of, multicast_of
from collectives.nccl.tuner import FUNCTION_OF, Choice, Tuner
from collectives.schedule.program import ProgramSchedule

MOST_MESSAGES = 16_000
"""Messages of a program at most: beyond, chunks are longer than NCCL's, so that there are fewer."""


def nccl_schedule(
    tuner: Tuner,
    shape: Shape,
    chunking: Chunking,
    switches: Switches | None = None,
    launch_ns: int | None = None,
) -> ProgramSchedule:
    """The schedule of a collective; `switches` are those of its group, where some reduce. A rank
    takes the tuner's latency of an NVLink step for each message, unless the chunking has a delay of
    its own, and before its first one `launch_ns`, or the tuner's base latency; with NVLS the
    switches take both. Raises DoesNotFit."""
    way = nccl_algorithm(tuner, shape, switches)
    delay_ns = chunking.endpoint_delay_ns or way.step_ns
    found = cut(shape, way.algorithm, replace(chunking, endpoint_delay_ns=delay_ns, chunks=1))
    before_ns = way.launch_ns if launch_ns is None else launch_ns
    return replace(found, launch_ns=before_ns, lines=LINES[way.protocol])


@dataclass(frozen=True, slots=True)
class Way:
    """How NCCL runs a collective, and what a GPU takes for each message and before its first
    one."""

    algorithm: Nccl
    protocol: str
    step_ns: int
    launch_ns: int


def nccl_algorithm(tuner: Tuner, shape: Shape, switches: Switches | None = None) -> Way:
    """The way that NCCL chooses. Raises DoesNotFit."""
    if shape.kind not in FUNCTION_OF:
        return _all_to_all(tuner, shape)
    choice = tuner.choose(shape.kind, shape.size_bytes)
    comm = tuner.communicator
    channels = choice.channels
    if choice.by_switches:
        found = _by_switches(choice, shape, comm, switches)
    else:
        way = {"Ring": "ring", "Tree": "tree", "PAT": "pat"}[choice.algorithm]
        loops, slices = _cut(choice, shape, comm, way)
        rings = comm.rings[:channels] if way != "tree" else ()
        trees = comm.trees[:channels] if way == "tree" else ()
        ahead = choice.ahead
        found = Nccl(way=way, rings=rings, trees=trees, loops=loops, slices=slices, ahead=ahead)
    return Way(found, choice.protocol, choice.step_ns, choice.launch_ns)


def _by_switches(
    choice: Choice, shape: Shape, comm: Communicator, switches: Switches | None
) -> Nccl:
    """NVLS and CollNet."""
    if choice.algorithm in COLLNET:
        collnet = collnet_of(comm, switches, choice.algorithm)
        parts = len(collnet.parts(0))
        channels, parts, loops, pieces = _cut_for_the_network(
            choice, shape, parts, comm.size + comm.nodes, collnet.piece_bytes
        )
        return Nccl(
            way="collnet",
            loops=loops,
            slices=pieces,
            ahead=choice.ahead * pieces,
            collnet=replace(collnet, heads=collnet.heads[:parts]),
            channels_of_switches=channels,
        )
    multicast = multicast_of(comm, switches, choice.algorithm)
    channels, pieces = choice.channels, 1
    if multicast.network:
        channels, parts, loops, pieces = _cut_for_the_network(
            *(choice, shape, len(multicast.heads), comm.size + 3 * comm.nodes),
            multicast.piece_bytes,
        )
        multicast = replace(multicast, heads=multicast.heads[:parts])
    else:
        loops, _ = _cut(choice, shape, comm, "nvls")
    return Nccl(
        way="nvls",
        loops=loops,
        slices=pieces,
        ahead=choice.ahead * pieces,
        multicast=multicast,
        channels_of_switches=channels,
    )


def _cut_for_the_network(
    choice: Choice, shape: Shape, parts: int, ends: int, piece_bytes: int
) -> tuple[int, int, int, int]:
    """Channels and parts with any data, chunks of each, and the pieces in which the network's
    switches pass these on. NCCL fills chunk after chunk (src/device/all_reduce.h)."""
    chunks = -(-shape.size_bytes // choice.chunk_bytes)
    channels, parts = min(choice.channels, -(-chunks // parts)), min(parts, chunks)
    at_once = channels * parts
    loops = min(-(-chunks // at_once), max(1, MOST_MESSAGES // (2 * ends * at_once)))
    each_bytes = -(-shape.size_bytes // (at_once * loops))
    most = max(1, MOST_MESSAGES // (2 * ends * at_once * loops))
    return channels, parts, loops, min(most, -(-each_bytes // piece_bytes))


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


def _all_to_all(tuner: Tuner, shape: Shape) -> Way:
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
    step_us, launch_us = tuner.point_to_point_us(protocol)
    found = Nccl(way="p2p", rings=rings, p2p_channels=comm.p2p_channels)
    return Way(found, protocol, round(step_us * 1000), round(launch_us * 1000))


_IN_PARTS = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER)

"""Which ECMP next hop Linux takes for a flow, computed as its kernel does.

With `net.ipv4.fib_multipath_hash_policy` 3 and `fib_multipath_hash_fields` 0x37 a router hashes
the addresses, the protocol and the ports of every packet under `fib_multipath_hash_seed`. Policy 1,
which is meant for the same, does not: a TCP packet carries its sender's own random `sk_txhash`, a
veth hands it over with the packet, and policy 1 takes it instead of hashing (`skb->l4_hash` in
fib_multipath_hash, net/ipv4/route.c), with the same outcome at every tier. tests/topologies
holds all of this against a kernel.

Sources: Linux 6.12, net/ipv4/route.c (fib_multipath_custom_hash_skb), include/net/ip_fib.h
(fib_multipath_hash_from_keys), net/core/flow_dissector.c (__flow_hash_from_keys),
net/ipv4/fib_semantics.c (fib_rebalance, fib_select_multipath), include/linux/jhash.h; SipHash-2-4
is Aumasson and Bernstein, INDOCRYPT 2012. All on a little-endian machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv4Address
from struct import pack, unpack

from topologies.routing.routes import NextHop, Path, Routes
from topologies.routing.segments import segments_of
from topologies.spec.routing_section import (
    BY_HASH,
    Ecmp,
    NextHopChoice,
    Source,
    Srv6,
    Weighted,
)

HASH_POLICY = 3
HASH_FIELDS = 0x37
"""Source and destination address, protocol, source and destination port (include/net/ip_fib.h)."""

_PROTOCOL = 0x04
_FIELD_BITS = {"addresses": 0x03, "queue-pair": 0x10, "ports": 0x30}

TCP, UDP = 6, 17
_WORD = 2**64 - 1
_HALF = 2**32 - 1
_JHASH_INITVAL = 0xDEADBEEF


@dataclass(frozen=True, slots=True)
class FiveTuple:
    """One direction of a connection. Both directions have the same hash."""

    source: IPv4Address
    destination: IPv4Address
    source_port: int
    destination_port: int
    protocol: int = TCP


def hash_fields(choice: NextHopChoice) -> int:
    """The `fib_multipath_hash_fields` of a choice. The protocol is always hashed, which all the
    packets of a run but a few have in common."""
    if isinstance(choice, Ecmp | Weighted | Srv6):
        return _PROTOCOL | sum(_FIELD_BITS[field] for field in _covering(choice.fields))
    return HASH_FIELDS


def _covering(fields: Sequence[str]) -> set[str]:
    return {*fields} - ({"queue-pair"} if "ports" in fields else set())


def node_hash_seed(seed: int, node: str, choice: NextHopChoice = BY_HASH) -> int:
    """The `fib_multipath_hash_seed` of a node, never 0, which the kernel takes for "random".

    It differs from node to node, as between real switches: with one seed for all (`seeds: shared`
    of a choice), the second tier chooses by the same bits as the first and uses only some of its
    links.
    """
    is_shared = isinstance(choice, Ecmp | Weighted | Srv6) and choice.seeds == "shared"
    digest = sha256(str(seed).encode() if is_shared else f"{seed}/{node}".encode()).digest()
    return int.from_bytes(digest[:4], "little") or 1


def forwarding_hash(flow: FiveTuple, hash_seed: int, fields: int = HASH_FIELDS) -> int:
    """The 31-bit multipath hash of a flow's packets at a router that forwards them."""
    mixed = _jhash_2words(_keys_hash(flow, hash_seed, fields), 0)
    return mixed >> 1


def output_hash(flow: FiveTuple, hash_seed: int, fields: int = HASH_FIELDS) -> int:
    """The 31-bit multipath hash of a connected flow at the host that sends it."""
    return _keys_hash(flow, hash_seed, fields) >> 1


def select(hash_31: int, weights: Sequence[int]) -> int:
    """The position of the next hop that a 31-bit hash selects among alive ones of these weights.

    Raises ValueError when there is none.
    """
    if not weights:
        raise ValueError("no next hop to select")
    total, reached = sum(weights), 0
    for position, weight in enumerate(weights):
        reached += weight
        upper_bound = (2 * (reached << 31) + total) // (2 * total) - 1
        if hash_31 <= upper_bound:
            return position
    return len(weights) - 1


def flow_path(routes: Routes, source: str, destination: str, flow: FiveTuple, seed: int) -> Path:
    """The hops that a flow's packets take from a host to another under the spec's `seed`.

    `flow` must have these hosts' addresses. Raises ValueError when they cannot reach each other,
    and where switches choose by more than a hash.
    """
    path: list[NextHop] = []
    node = source
    while node != destination:
        hop = flow_hop(routes, node, source, destination, flow, seed)
        if hop is None:
            raise ValueError(f"{node} has no route to {destination}")
        path.append(hop)
        node = hop.node
    return tuple(path)


def flow_hop(
    routes: Routes, node: str, source: str, destination: str, flow: FiveTuple, seed: int
) -> NextHop | None:
    """The next hop of a flow's packets (`flow_path`) at a node, None where nothing leads on. Raises
    ValueError where switches choose by more than a hash."""
    choice = routes.fabric.choice
    if not choice.by_headers:
        raise ValueError(f"routing {choice.kind}: a flow has no path of its own")
    if isinstance(choice, Srv6):
        return _segment_hop(routes, node, source, destination, flow, seed)
    hops = routes.next_hops(node, destination)
    if len(hops) < 2:
        return hops[0] if hops else None
    if isinstance(choice, Source):
        number = (flow.source_port + flow.destination_port) & 0xFFFF
        stride = routes.strides[routes.fabric.by_name[node].layer]
        return hops[number // stride % len(hops)]
    hashed = output_hash if node == source else forwarding_hash
    drawn = hashed(flow, node_hash_seed(seed, node, choice), hash_fields(choice))
    buckets = None if routes.groups is None else routes.groups.towards(node, destination)
    if buckets is not None:
        return next(hop for hop in hops if hop.link == buckets[drawn % len(buckets)])
    return hops[select(drawn, routes.weights(node, destination))]


def _segment_hop(
    routes: Routes, node: str, source: str, destination: str, flow: FiveTuple, seed: int
) -> NextHop | None:
    """The hop of the path of segments that the flow's host has chosen; None off that path."""
    paths = segments_of(routes).paths(source, destination)
    if not paths:
        return None
    choice = routes.fabric.choice
    drawn = output_hash(flow, node_hash_seed(seed, source, choice), hash_fields(choice))
    path = paths[select(drawn, (1,) * len(paths))]
    at = source
    for hop in path:
        if at == node:
            return hop
        at = hop.node
    return None


def _keys_hash(flow: FiveTuple, hash_seed: int, fields: int) -> int:
    """fib_multipath_hash_from_keys: SipHash-2-4 over struct flow_keys from `basic` on. A value that
    is not among the fields is left 0."""
    source, destination = bytes(4), bytes(4)
    if fields & _FIELD_BITS["addresses"]:
        source, destination = flow.source.packed, flow.destination.packed
    source_port = flow.source_port if fields & _FIELD_BITS["queue-pair"] else 0
    has_both = fields & _FIELD_BITS["ports"] == _FIELD_BITS["ports"]
    ports = (pack(">H", source_port), pack(">H", flow.destination_port if has_both else 0))
    # __flow_hash_consistentify: in ascending order, compared as this machine reads them.
    if destination[::-1] < source[::-1]:
        source, destination = destination, source
    if ports[1][::-1] < ports[0][::-1]:
        ports = (ports[1], ports[0])
    # basic (n_proto 2, ip_proto 1, padding 1), tags 4, vlan 8, cvlan 8, keyid 4, ports 4, icmp 4,
    # addresses 8, and the 4 bytes that align the structure.
    keys = pack("<HBB24x", 0, flow.protocol, 0) + ports[0] + ports[1]
    keys += bytes(4) + source + destination + bytes(4)
    key = hash_seed << 32 | hash_seed
    return (siphash_2_4(keys, key, key) & _HALF) or 1


def siphash_2_4(data: bytes, key_0: int, key_1: int) -> int:
    """SipHash-2-4 of `data` under two 64-bit words of key."""
    v0, v1 = key_0 ^ 0x736F6D6570736575, key_1 ^ 0x646F72616E646F6D
    v2, v3 = key_0 ^ 0x6C7967656E657261, key_1 ^ 0x7465646279746573

    def rounds(count: int) -> None:
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0 = (v0 + v1) & _WORD
            v1 = (v1 << 13 | v1 >> 51) & _WORD ^ v0
            v0 = (v0 << 32 | v0 >> 32) & _WORD
            v2 = (v2 + v3) & _WORD
            v3 = (v3 << 16 | v3 >> 48) & _WORD ^ v2
            v0 = (v0 + v3) & _WORD
            v3 = (v3 << 21 | v3 >> 43) & _WORD ^ v0
            v2 = (v2 + v1) & _WORD
            v1 = (v1 << 17 | v1 >> 47) & _WORD ^ v2
            v2 = (v2 << 32 | v2 >> 32) & _WORD

    whole = len(data) // 8 * 8
    tail = data[whole:].ljust(7, b"\0") + bytes([len(data) & 255])
    for (word,) in (unpack("<Q", (data[:whole] + tail)[i : i + 8]) for i in range(0, whole + 8, 8)):
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 255
    rounds(4)
    return v0 ^ v1 ^ v2 ^ v3


def _jhash_2words(a: int, b: int) -> int:
    """jhash_2words(a, b, 0)."""
    start = _JHASH_INITVAL + (2 << 2)
    a, b, c = (a + start) & _HALF, (b + start) & _HALF, start

    def less(value: int, other: int, shift: int) -> int:
        return (value - ((other << shift | other >> (32 - shift)) & _HALF)) & _HALF

    c = less(c ^ b, b, 14)
    a = less(a ^ c, c, 11)
    b = less(b ^ a, a, 25)
    c = less(c ^ b, b, 16)
    a = less(a ^ c, c, 4)
    b = less(b ^ a, a, 14)
    return less(c ^ b, b, 24)

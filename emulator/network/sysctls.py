"""The sysctls of a node: what a router or a host of a training cluster's network has set.

All of them are per network namespace: nothing of the machine's own network changes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from emulator.network.segments import FORWARDING, SYSCTLS
from topologies.fabrics.fabric import Node, NodeKind
from topologies.routing.choices import choice_settings
from topologies.routing.ecmp_hash import HASH_POLICY, hash_fields, node_hash_seed
from topologies.spec.routing_section import BY_HASH, NextHopChoice, Srv6

_ROOT = "/proc/sys/net/"


LINUX_MIN_RTO_NS = 200_000_000  # TCP_RTO_MIN in include/net/tcp.h
LINUX_INITIAL_WINDOW = 10  # TCP_INIT_CWND, RFC 6928


@dataclass(frozen=True)
class TcpSettings:
    """TCP as the fabric's hosts run it. Buffers are maxima and starting values alike, so that the
    spec sets the window, and not autotuning.

    `ecn` None: on when the congestion control or the queue marks. `min_rto_ns` and
    `initial_window` (segments) become route metrics; the kernel's own resolution for the former is
    a jiffy.
    """

    congestion_control: str = "cubic"
    receive_buffer_bytes: int = 16_000_000
    send_buffer_bytes: int = 16_000_000
    ecn: bool | None = None
    min_rto_ns: int = LINUX_MIN_RTO_NS
    initial_window: int = LINUX_INITIAL_WINDOW


def node_sysctls(
    node: Node,
    transport: TcpSettings,
    *,
    multihomed: bool,
    marks: bool,
    hash_seed: int,
    choice: NextHopChoice = BY_HASH,
    stride: int = 1,
    aggregates: bool = False,
) -> tuple[tuple[str, str], ...]:
    """(path below net/, value) of everything that is set in a node's namespace, in order.

    `choice` is how next hops are chosen: by a hash, or in the virtual kernel by more than that;
    `stride` is of the node's digit, where packets say their path (`Routes.strides`).
    """
    has_segments = isinstance(choice, Srv6)
    # No IPv6: its neighbour discovery and its duplicate address detection would be on the wire.
    settings = [*SYSCTLS] if has_segments else [("ipv6/conf/all/disable_ipv6", "1")]
    if has_segments and node.forwards:
        settings += FORWARDING
    settings += [
        ("ipv4/ip_forward", "1" if node.forwards else "0"),
        ("ipv4/icmp_ratelimit", "0"),
        # The namespace that is made from this one, the next node's, has a table of its own for its
        # connections (tcp_set_hashinfo in net/ipv4/tcp_ipv4.c): a rank that reads its connections
        # would otherwise go over those of all ranks.
        ("ipv4/tcp_child_ehash_entries", "4096"),
    ]
    if node.forwards and node.kind is not NodeKind.HOST:
        # Linux looks for a socket of its own before it looks for the route: never found here.
        settings.append(("ipv4/ip_early_demux", "0"))
    if multihomed or (has_segments and not node.forwards):
        settings += [
            (f"ipv4/conf/{scope}/{name}", value)
            for scope in ("all", "default")
            for name, value in (
                ("rp_filter", "0"),
                ("send_redirects", "0"),
                # A next hop whose link has lost its carrier is left out of the hash.
                ("ignore_routes_with_linkdown", "1"),
            )
        ]
        settings += [
            # Not policy 1, which takes the sender's random socket hash for the header's: see
            # topologies.routing.ecmp_hash.
            ("ipv4/fib_multipath_hash_policy", str(HASH_POLICY)),
            ("ipv4/fib_multipath_hash_fields", str(hash_fields(choice))),
            ("ipv4/fib_multipath_hash_seed", str(node_hash_seed(hash_seed, node.name, choice))),
        ]
        told = choice_settings(choice, hash_seed, node.name, stride)
        if told is not None and node.forwards:
            settings.append(("gwroute/settings", " ".join(map(str, told))))
    if node.kind is NodeKind.HOST or aggregates:
        settings += _host_sysctls(transport, marks)
    return tuple(settings)


def _host_sysctls(transport: TcpSettings, marks: bool) -> list[tuple[str, str]]:
    control = transport.congestion_control
    ecn = transport.ecn if transport.ecn is not None else marks or control == "dctcp"
    receive, send = transport.receive_buffer_bytes, transport.send_buffer_bytes
    return [
        ("ipv4/tcp_congestion_control", control),
        ("ipv4/tcp_ecn", "1" if ecn else "0"),
        ("ipv4/tcp_rmem", f"4096 {receive} {receive}"),
        ("ipv4/tcp_wmem", f"4096 {send} {send}"),
        ("ipv4/tcp_slow_start_after_idle", "0"),
        ("ipv4/tcp_no_metrics_save", "1"),
        # As with a table of 524,288 connections, which machines of 64 GiB have, however large this
        # host's own is.
        ("ipv4/tcp_max_syn_backlog", "4096"),
        ("ipv4/tcp_max_tw_buckets", "262144"),
    ]


OPTIONAL = frozenset(
    {
        "ipv6/conf/all/disable_ipv6",
        "ipv4/fib_multipath_hash_seed",  # Linux 6.11 and later
        "ipv4/tcp_child_ehash_entries",  # 6.1
        "gwmptcp/sockets",  # the virtual kernel's: elsewhere a library turns sockets
    }
)
"""Sysctls that a kernel may lack without the fabric being wrong."""


def write_sysctls(settings: tuple[tuple[str, str], ...]) -> None:
    """Writes sysctls of the namespace in which the calling thread is.

    Raises OSError that names the sysctl, the value and the kernel's answer. One that the kernel
    does not have is skipped when it is in `OPTIONAL`.
    """
    for path, value in settings:
        try:
            # Not through a Path and a text file: a k=16 fat-tree writes 20,000 of them.
            descriptor = os.open(_ROOT + path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, value.encode("ascii"))
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            if path not in OPTIONAL:
                raise OSError(f"this kernel has no sysctl net/{path}") from None
        except OSError as error:
            raise OSError(error.errno, f"set net/{path} to {value}: {error.strerror}") from error

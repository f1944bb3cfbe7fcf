"""The capabilities of the kernel at hand, asked of the kernel itself in a namespace made for it."""

from __future__ import annotations

import errno
import functools
import os
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from pathlib import Path

from emulator.linux import bpf, congestion_control, namespaces, rtnetlink
from emulator.linux.child import answer_of_child
from emulator.linux.netlink import NetlinkError, NetlinkSocket, Request

QDISCS = (
    "netem",
    "red",
    "tbf",
    "htb",
    "codel",
    "fq_codel",
    "prio",
    "bfifo",
    "drr",
    "plug",
    "clsact",
)
"""The stock queue disciplines that an arrangement may use."""

CONGESTION_CONTROLS = ("cubic", "dctcp", "bbr", "reno")
"""Those that a spec may name."""

PORT_QDISC = "gwport"
"""Our own, in the virtual kernel."""

_NOT_THERE = (errno.ENOENT, errno.EOPNOTSUPP)
_PROBE, _PEER = 102, 103


@dataclass(frozen=True)
class KernelCapabilities:
    """`refused` says why the kernel could not be asked; everything else is unknown then.

    `qdiscs` and `devices` are those found; `sysctls` are paths below net/ that a namespace has.
    `segments`: packets are routed by micro-segments of IPv6. `resilient_groups`: next hops are
    chosen by a table of buckets.
    """

    refused: str | None = None
    qdiscs: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    redirect: bool = False
    classifiers: bool = False
    sysctls: frozenset[str] = frozenset()
    congestion_controls: frozenset[str] = frozenset()
    segments: bool = False
    resilient_groups: bool = False


@functools.cache
def kernel_capabilities() -> KernelCapabilities:
    """Asks once per process, in a child, so that nothing stays. As root in a network namespace;
    otherwise in a user namespace, if this machine lets users have one."""
    try:
        said = answer_of_child(lambda: asdict(_ask()))
    except OSError as problem:
        return KernelCapabilities(refused=str(problem))
    sets = {key: frozenset(value) for key, value in said.items() if isinstance(value, list)}
    return KernelCapabilities(**(said | sets))


def _ask() -> KernelCapabilities:
    namespaces.own_network()
    devices = frozenset(kind for kind in ("veth", "ifb") if _makes(rtnetlink.device(kind)))
    qdiscs: set[str] = set()
    redirect = classifiers = segments = groups = False
    if "veth" in devices:
        with NetlinkSocket() as netlink:
            _make_probe(netlink)
            segments = _has_segments(netlink)
            groups = _has_resilient_groups(netlink)
            for number, kind in enumerate((*QDISCS, PORT_QDISC), start=1):
                if _accepts(netlink, _probe_qdisc(kind, number << 16)):
                    qdiscs.add(kind)
            if "clsact" in qdiscs:
                redirect = _redirects(netlink)
                classifiers = _classifies(netlink)
    return KernelCapabilities(
        qdiscs=frozenset(qdiscs),
        devices=devices,
        redirect=redirect,
        classifiers=classifiers,
        segments=segments,
        resilient_groups=groups,
        sysctls=frozenset(
            path
            for path in ("ipv4/fib_multipath_hash_policy", "ipv4/fib_multipath_hash_seed")
            if Path("/proc/sys/net", path).exists()
        ),
        congestion_controls=_congestion_controls(),
    )


def _has_segments(netlink: NetlinkSocket) -> bool:
    """Whether the kernel takes what `emulator.network.segments` asks of a switch and of a host. An
    older one ignores the flavour, and has no mode of wrapping without a routing header."""
    locator, host = IPv6Network("fcbb:bb00:1::/48"), IPv4Address("10.0.0.1")
    hop = rtnetlink.Hop(_PROBE, IPv4Address("10.0.0.3"))
    wraps = [(hop, IPv6Address("fcbb:bb00:1::"))]
    asked = [
        rtnetlink.set_state(_PROBE, True),
        rtnetlink.set_state(_PEER, True),
        rtnetlink.address(_PROBE, host),
        rtnetlink.segment_of_switch(locator, _PROBE, 32),
        rtnetlink.wrapping_route(IPv4Address("10.0.0.2"), wraps, host, rtnetlink.Metrics()),
    ]
    try:
        netlink.execute(asked)
    except NetlinkError:
        return False
    return True


def _has_resilient_groups(netlink: NetlinkSocket) -> bool:
    """An older kernel has next hops as objects, and groups of one type."""
    hop = rtnetlink.Hop(_PROBE, IPv4Address("10.0.0.3"))
    asked = [
        rtnetlink.set_state(_PROBE, True),
        rtnetlink.set_state(_PEER, True),
        rtnetlink.next_hop(1, hop),
        rtnetlink.resilient_group(2, [(1, 1)], 8, 0, 0),
    ]
    try:
        netlink.execute(asked)
    except NetlinkError:
        return False
    return True


def _congestion_controls() -> frozenset[str]:
    for name in CONGESTION_CONTROLS:
        try:
            congestion_control.ensure(name)
        except OSError:
            continue
    return congestion_control.loaded()


def _makes(request: Request) -> bool:
    with NetlinkSocket() as netlink:
        return _accepts(netlink, request)


def _accepts(netlink: NetlinkSocket, request: Request) -> bool:
    """Whether the kernel knows what is asked for. One that it knows but wants otherwise (options
    that are missing) is there as well."""
    try:
        netlink.execute([request])
    except NetlinkError as refusal:
        return refusal.errno not in _NOT_THERE
    return True


def _make_probe(netlink: NetlinkSocket) -> None:
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        netlink.execute(
            [
                rtnetlink.veth(
                    rtnetlink.VethEnd("probe", _PROBE, own, "02:47:57:00:00:00"),
                    rtnetlink.VethEnd("peer", _PEER, own, "02:47:57:00:00:01"),
                    1500,
                )
            ]
        )
    finally:
        os.close(own)


def _probe_qdisc(kind: str, handle: int) -> Request:
    """Each kind has its own handle: under a handle in use, any other kind is refused as such."""
    if kind == "clsact":
        return rtnetlink.redirect_ingress(_PROBE, _PEER)[0]
    options = bytes(24) if kind == "netem" else b""
    return rtnetlink.qdisc(_PROBE, kind, handle=handle, options=options)


def _redirects(netlink: NetlinkSocket) -> bool:
    match = rtnetlink.redirect_ingress(_PROBE, _PEER)[1]
    return _accepts(netlink, match)


def _classifies(netlink: NetlinkSocket) -> bool:
    """Whether eBPF classifiers run here, with memory that user space shares."""
    try:
        table = bpf.make_array(1, 8)
        program = bpf.load_classifier(bpf.BpfProgram("r0 = -1\nexit", {}).code)
    except OSError:
        return False
    try:
        return _accepts(netlink, rtnetlink.run_classifier(_PROBE, program, 1, arriving=True))
    finally:
        os.close(table)
        os.close(program)

"""The kernel's counters: ports from netlink, TCP from /proc, per network namespace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from emulator.linux.messages.formats import (
    IFLA_OPERSTATE,
    IFLA_STATS64,
    INTERFACE,
    INTERFACE_STATISTICS,
    QDISC_BASIC,
    QDISC_MESSAGE,
    QDISC_QUEUE,
    TCA_KIND,
    TCA_OPTIONS,
    TCA_STATS2,
    TCA_STATS_BASIC,
    TCA_STATS_QUEUE,
    TCA_XSTATS,
)
from emulator.linux.netlink import NetlinkSocket, parse_attributes
from emulator.linux.rtnetlink import get_links, get_qdiscs
from emulator.ports.arrangement import QdiscStatistics, QueueCounters
from topologies.fabrics.fabric import Link, Port

_read_index = INTERFACE.reader("index")
_read_statistics = INTERFACE_STATISTICS.reader("tx_packets", "tx_bytes", "rx_dropped", "tx_dropped")
_read_qdisc = QDISC_MESSAGE.reader("index", "handle", "parent")
_read_queue = QDISC_QUEUE.reader("backlog", "drops")
_OPERATIONAL_UP = b"\6"  # IF_OPER_UP


@dataclass(frozen=True, slots=True)
class InterfaceStatistics:
    """The packets that an interface sent and lost, of its rtnl_link_stats64."""

    tx_packets: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int


@dataclass(frozen=True)
class PortCounters:
    """One egress port over its life. `lost_outside_queue` are packets that the devices themselves
    lost, which no emulated queue explains: a run with any of them is not to be believed."""

    link: int
    port: str
    node: str
    peer: str
    rate_bps: int
    delay_ns: int
    bytes: int
    packets: int
    queue: QueueCounters
    lost_outside_queue: int

    def as_dict(self) -> dict[str, object]:
        """The port's line of links.jsonl."""
        found: dict[str, object] = {
            "link": self.link,
            "port": self.port,
            "node": self.node,
            "peer": self.peer,
            "rate_bps": self.rate_bps,
            "delay_ns": self.delay_ns,
            "bytes": self.bytes,
            "packets": self.packets,
            "drops": self.queue.drops,
            "drops_by_reason": dict(self.queue.drops_by_reason),
            "ecn_marks": self.queue.ecn_marks,
            "pauses": self.queue.pauses,
            "paused_ns": self.queue.paused_ns,
            "max_backlog_bytes": self.queue.max_backlog_bytes,
            "backlog_byte_us": self.queue.backlog_byte_us,
            "lost_outside_queue": self.lost_outside_queue,
        }
        if self.queue.trims:
            found["trims"] = self.queue.trims
        if self.queue.classes:
            found["classes"] = [each.as_dict() for each in self.queue.classes]
        return found


@dataclass(frozen=True, slots=True)
class TcpCounters:
    """TCP of one node since its namespace was made (/proc/net/snmp and /proc/net/netstat)."""

    retransmits: int
    ce_packets_received: int


def port_counters(
    link: Link,
    port: Port,
    interfaces: Mapping[str, InterfaceStatistics],
    queue: QueueCounters,
    was_down: bool,
) -> PortCounters:
    """The counters of one direction of a link, from those of its two interfaces. A packet
    that the devices of a link lost that has been taken down is a drop for that reason."""
    own, far = interfaces[port.interface], interfaces[link.other(port.node).interface]
    lost = max(own.tx_dropped, far.rx_dropped)  # veth counts most of what it loses at both ends
    if was_down and lost:
        reasons = {**queue.drops_by_reason, "link_down": lost}
        queue = replace(queue, drops=queue.drops + lost, drops_by_reason=reasons)
        lost = 0
    return PortCounters(
        link=link.index,
        port=port.interface,
        node=port.node,
        peer=link.other(port.node).node,
        rate_bps=link.rate_bps,
        delay_ns=link.delay_ns,
        bytes=own.tx_bytes,
        packets=own.tx_packets,
        queue=queue,
        lost_outside_queue=lost,
    )


def read_interfaces(netlink: NetlinkSocket) -> dict[int, InterfaceStatistics]:
    """Interface index -> statistics, of the socket's namespace."""
    found = {}
    for body in netlink.dump(get_links(with_statistics=True)):
        data = parse_attributes(body, INTERFACE.size).get(IFLA_STATS64)
        if data is not None:
            (index,) = _read_index(body)
            found[index] = InterfaceStatistics(*_read_statistics(data))
    return found


def running(netlink: NetlinkSocket) -> set[int]:
    """The indices of the interfaces whose link the kernel knows to be up (RFC 2863 operational
    state; IFF_RUNNING would be set as well as long as the kernel has not looked yet)."""
    found: set[int] = set()
    for body in netlink.dump(get_links(with_statistics=False)):
        if parse_attributes(body, INTERFACE.size).get(IFLA_OPERSTATE) == _OPERATIONAL_UP:
            found.update(_read_index(body))
    return found


def read_qdiscs(netlink: NetlinkSocket) -> dict[int, list[QdiscStatistics]]:
    """Interface index -> its qdiscs, of the socket's namespace."""
    found: dict[int, list[QdiscStatistics]] = {}
    for body in netlink.dump(get_qdiscs()):
        index, handle, parent = _read_qdisc(body)
        attributes = parse_attributes(body, QDISC_MESSAGE.size)
        statistics = parse_attributes(attributes.get(TCA_STATS2, b""))
        octets, packets = QDISC_BASIC.unpack(
            statistics.get(TCA_STATS_BASIC, bytes(QDISC_BASIC.size))
        )
        backlog, drops = _read_queue(statistics.get(TCA_STATS_QUEUE, bytes(QDISC_QUEUE.size)))
        found.setdefault(index, []).append(
            QdiscStatistics(
                kind=attributes.get(TCA_KIND, b"").rstrip(b"\0").decode(),
                handle=handle,
                parent=parent,
                sent_bytes=octets,
                sent_packets=packets,
                drops=drops,
                backlog_bytes=backlog,
                options=attributes.get(TCA_OPTIONS, b""),
                application=attributes.get(TCA_XSTATS, b""),
            )
        )
    return found


def _read_table(name: str) -> dict[str, Mapping[str, int]]:
    """A file of pairs of lines (names, values), of the calling thread's namespace."""
    lines = Path(f"/proc/thread-self/net/{name}").read_text().splitlines()
    found: dict[str, Mapping[str, int]] = {}
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        group, *keys = names.split()
        found[group.rstrip(":")] = dict(zip(keys, map(int, values.split()[1:]), strict=False))
    return found


def read_tcp() -> TcpCounters:
    """TCP's counters of the namespace in which the calling thread is."""
    return TcpCounters(
        retransmits=_read_table("snmp")["Tcp"]["RetransSegs"],
        ce_packets_received=_read_table("netstat")["IpExt"].get("InCEPkts", 0),
    )


def read_udp() -> dict[str, int]:
    """UDP's counters of the namespace in which the calling thread is: datagrams received and sent,
    and those for which a socket had no room (RFC 4113)."""
    table = _read_table("snmp")["Udp"]
    return {
        "received": table["InDatagrams"],
        "sent": table["OutDatagrams"],
        "no_room": table["RcvbufErrors"],
    }


def read_unrouted(at_switch: bool) -> int:
    """Packets that the namespace in which the calling thread is had no route for: its own, those
    that came to it for somebody else, and those that it was to forward, by segments too
    (OutNoRoutes, InAddrErrors and InNoRoutes of RFC 4293). Packets that a route calls unreachable
    are in none of these: a switch has then sent an ICMP error, and it has no ports that could be
    the reason for one."""
    table = _read_table("snmp")
    lost = table["Ip"]["OutNoRoutes"] + table["Ip"]["InAddrErrors"]
    lost += _read_table("netstat")["IpExt"].get("InNoRoutes", 0) + _without_next_segment()
    return lost + (table["Icmp"]["OutDestUnreachs"] if at_switch else 0)


def _without_next_segment() -> int:
    """Packets of IPv6 that were to be forwarded."""
    path = Path("/proc/net/snmp6")
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(int(line.split()[1]) for line in lines if line.startswith("Ip6InNoRoutes"))


def read_next_hop_choices() -> tuple[int, int]:
    """For how many packets the namespace in which the calling thread is chose among next hops by
    more than a hash, and how many flows went on by another; zeros on a kernel that hashes all."""
    path = Path("/proc/sys/net/gwroute/counts")
    if not path.exists():
        return 0, 0
    packets, moves = map(int, path.read_text().split())
    return packets, moves


def read_softnet_drops() -> int:
    """Packets that the per-CPU backlogs of the whole machine have dropped since boot
    (second column of /proc/net/softnet_stat, hexadecimal)."""
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines)

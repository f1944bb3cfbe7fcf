"""Runs one collective in ns-3, packet by packet: a description on stdin, the result on stdout.

A process of its own (`python -m analysis.predict.models.ns3_run`), because importing ns-3
takes seconds and cannot be undone, and a simulation that crashes must not take its caller along.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

_START_NS = 1_000_000_000
"""Connections are set up before; the handshakes' round-trip times are known by then."""

_CONGESTION_CONTROL = {
    "cubic": "ns3::TcpCubic",
    "dctcp": "ns3::TcpDctcp",
    "reno": "ns3::TcpLinuxReno",
    "bbr": "ns3::TcpBbr",
}


def simulate(description: dict[str, Any]) -> dict[str, Any]:
    """Build the network that `description` (see analysis.predict.models.ns3) says, and run it."""
    from ns import ns

    ns.cppyy.cppdef((Path(__file__).parent / "ns3_program.cc").read_text())
    gw = ns.cppyy.gbl.gw
    # cppyy compiles what a function reaches when it is first called: here, not while time is taken.
    gw.Run(0, 0)
    transport = description["transport"]
    mtu = description["mtu_bytes"]
    for name, value in (
        ("ns3::TcpSocket::SegmentSize", ns.UintegerValue(mtu - 52)),
        ("ns3::TcpSocket::InitialCwnd", ns.UintegerValue(transport["initial_window"])),
        ("ns3::TcpSocket::DelAckCount", ns.UintegerValue(2)),
        ("ns3::TcpSocket::TcpNoDelay", ns.BooleanValue(True)),
        ("ns3::TcpSocket::RcvBufSize", ns.UintegerValue(transport["rcvbuf_bytes"])),
        ("ns3::TcpSocket::SndBufSize", ns.UintegerValue(transport["sndbuf_bytes"])),
        ("ns3::TcpSocketBase::MinRto", ns.TimeValue(ns.NanoSeconds(transport["min_rto_ns"]))),
        ("ns3::TcpL4Protocol::SocketType", _type_id(ns, transport["congestion_control"])),
    ):
        ns.Config.SetDefault(name, value)
    if transport["congestion_control"] == "dctcp":
        ns.Config.SetDefault("ns3::TcpSocketBase::UseEcn", ns.StringValue("On"))

    nodes = ns.NodeContainer()
    nodes.Create(description["nodes"])
    ns.InternetStackHelper().Install(nodes)
    addresses = ns.Ipv4AddressHelper()
    addresses.SetBase(ns.Ipv4Address("172.16.0.0"), ns.Ipv4Mask("255.255.255.252"))
    interface: dict[int, int] = {}
    for link in description["links"]:
        helper = ns.PointToPointHelper()
        rate = link["rate_bps"]
        helper.SetDeviceAttribute("DataRate", ns.StringValue(f"{rate}bps"))
        helper.SetDeviceAttribute("Mtu", ns.UintegerValue(mtu))
        # PPP's header is 2 bytes of the 38 that Ethernet takes.
        gap_ns = round(36 * 8e9 / rate)
        helper.SetDeviceAttribute("InterframeGap", ns.TimeValue(ns.NanoSeconds(gap_ns)))
        helper.SetChannelAttribute("Delay", ns.TimeValue(ns.NanoSeconds(link["delay_ns"])))
        ends = ns.NodeContainer()
        ends.Add(nodes.Get(link["a"]))
        ends.Add(nodes.Get(link["b"]))
        devices = helper.Install(ends)
        for number, queue in enumerate(link["queues"]):
            _set_queue(ns, devices.Get(number), queue)
        assigned = addresses.Assign(devices)
        addresses.NewNetwork()
        for number in (0, 1):
            interface[2 * link["index"] + number] = int(assigned.Get(number).second)
    for pair in description["pairs"]:
        for end in ("low", "high"):
            facing = interface[pair[end]["facing"]]
            gw.AddAddress(nodes.Get(pair[end]["node"]), facing, pair[end]["address"])
        for end in ("low", "high"):
            for node, directed_link in pair[end]["routes"]:
                gw.AddRoute(nodes.Get(node), pair[end]["address"], interface[directed_link])
    gw.Reset(description["ranks"])
    for source, destination, size in description["messages"]:
        gw.AddMessage(source, destination, size)
    for rank, program in enumerate(description["programs"]):
        for kind, message in program:
            gw.AddOperation(rank, kind, message)
    for pair in description["pairs"]:
        low, high = pair["low"], pair["high"]
        gw.Connect(
            low["rank"],
            high["rank"],
            nodes.Get(low["node"]),
            nodes.Get(high["node"]),
            low["address"],
            high["address"],
        )
    began, began_s = time.monotonic(), time.process_time()
    duration_ns = int(gw.Run(_START_NS, description["limit_ns"]))
    return {
        "duration_ns": duration_ns,
        "wall_s": time.monotonic() - began,
        "processor_s": time.process_time() - began_s,
        "events": int(ns.Simulator.GetEventCount()),
    }


def _type_id(ns: Any, congestion_control: str) -> Any:
    return ns.TypeIdValue(ns.TypeId.LookupByName(_CONGESTION_CONTROL[congestion_control]))


def _set_queue(ns: Any, device: Any, queue: dict[str, Any]) -> None:
    """A drop-tail queue of bytes in the device; a marking one above it as a queue discipline."""
    size = ns.QueueSize(f"{queue['buffer_bytes']}B")
    if queue["k_bytes"] is None:
        device.GetQueue().SetMaxSize(size)
        return
    device.GetQueue().SetMaxSize(ns.QueueSize("1p"))
    helper = ns.TrafficControlHelper()
    helper.SetRootQueueDisc("ns3::RedQueueDisc")
    disc = helper.Install(device).Get(0)
    disc.SetMaxSize(size)
    disc.SetTh(float(queue["k_bytes"]), float(queue["k_bytes"]))
    disc.SetAttribute("UseEcn", ns.BooleanValue(True))
    disc.SetAttribute("QW", ns.DoubleValue(1.0))
    disc.SetAttribute("LInterm", ns.DoubleValue(1.0))
    disc.SetAttribute("UseHardDrop", ns.BooleanValue(False))
    disc.SetAttribute("Gentle", ns.BooleanValue(False))


if __name__ == "__main__":
    result = simulate(json.load(sys.stdin))
    print(json.dumps(result), flush=True)

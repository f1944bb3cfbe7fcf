"""Flow completion times: when each message was sent and received, as other simulators print it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.message_costs import wire_of
from analysis.predict.engines.paths import paths_of
from analysis.predict.engines.wire import Ints
from analysis.predict.interface import Setting


@dataclass(frozen=True, slots=True)
class FlowTime:
    """A message between two ranks: from its sender's posting it to its receiver's having all of it,
    in nanoseconds from the scenario's begin. `alone_ns` is what its bytes take on the idle path: a
    round trip of a bare packet, and all that it has on the wire at the rate of the slowest link.
    `call` is the number of its collective in the scenario. Ports are 0 where the setting does not
    know them."""

    call: int
    source: int
    destination: int
    source_address: IPv4Address
    destination_address: IPv4Address
    source_port: int
    destination_port: int
    over_roce: bool
    size_bytes: int
    start_ns: int
    end_ns: int
    alone_ns: int

    @property
    def duration_ns(self) -> int:
        """The flow completion time."""
        return self.end_ns - self.start_ns

    def as_ns3(self) -> str:
        """A line of fct.txt, as the ns-3 of HPCC and of ASTRA-sim writes it: `sip dip sport dport
        size start fct standalone_fct`, addresses in hexadecimal, times in nanoseconds
        (scratch/third.cc: qp_finish)."""
        ends = f"{int(self.source_address):08x} {int(self.destination_address):08x}"
        ports = f"{self.source_port} {self.destination_port}"
        times = f"{self.start_ns} {self.duration_ns} {self.alone_ns}"
        return f"{ends} {ports} {self.size_bytes} {times}"

    def as_htsim(self) -> str:
        """htsim's line of a flow that is over, in microseconds (sim/hpcc.cpp; its names are those
        of sim/datacenter/main_roce.cpp)."""
        name = f"{'Roce' if self.over_roce else 'Tcp'}_{self.source}_{self.destination}"
        at_us = f"{self.end_ns / 1000:.3f}"
        return f"Flow {name} finished at {at_us} total bytes {self.size_bytes}"


FORMATS = {"ns3": FlowTime.as_ns3, "htsim": FlowTime.as_htsim}
"""A line of a flow, by the name of the format."""


def flow_times(
    setting: Setting, joint: JointPrograms, posted_ns: Ints, received_ns: Ints
) -> Iterator[FlowTime]:
    """The messages of programs, in the order in which they end, with what the engine says of each;
    those that were never received are left out."""
    paths, ends = paths_of(setting), joint.ends
    carried = joint.messages_carried(setting.transport)
    source = ends[np.frombuffer(joint.compiled.source, dtype=np.int32)]
    destination = ends[np.frombuffer(joint.compiled.destination, dtype=np.int32)]
    alone_ns = _alone_ns(setting, joint, source, destination)
    groups = joint.groups(setting)
    by_name = setting.fabric.by_name
    ended = np.flatnonzero(received_ns >= 0)
    for message in ended[np.argsort(received_ns[ended], kind="stable")].tolist():
        pair = at, to = int(source[message]), int(destination[message])
        group = groups[joint.compiled.source[message]]
        over_roce = bool(carried[message])
        from_port, to_port = paths.ports_of(pair, over_roce, group) or (0, 0)
        yield FlowTime(
            joint.owners[message],
            at,
            to,
            by_name[paths.ends[at]].address,
            by_name[paths.ends[to]].address,
            from_port,
            to_port,
            over_roce,
            int(joint.size_bytes[message]),
            int(posted_ns[message]),
            int(received_ns[message]),
            int(alone_ns[message]),
        )


def _alone_ns(setting: Setting, joint: JointPrograms, source: Ints, destination: Ints) -> Ints:
    paths = paths_of(setting)
    there, back = paths.costs(source, destination), paths.costs(destination, source)
    wire = np.zeros(len(source))
    owners = np.array(joint.owners, dtype=np.int64)
    for number in np.unique(owners):
        own = owners == number
        call = joint.calls[number].call
        of_call = wire_of(setting.transport, call, paths.mtu_bytes, paths.outer_bytes)
        wire[own] = of_call.data_bytes(joint.size_bytes[own])
    found: Ints = np.round(
        there.propagation_ns + back.propagation_ns + wire * there.ns_per_byte
    ).astype(np.int64)
    return found

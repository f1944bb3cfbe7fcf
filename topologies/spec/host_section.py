"""The `host` section of a spec: the costs of sending, receiving and waking up, and the disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from topologies.spec.fabric_section import Integer
from topologies.spec.queue_section import SpecSection
from topologies.units import BytesPerSecond, TimeNs, format_bandwidth, format_time

PRESETS: Mapping[str, Mapping[str, object]] = {
    "xeon-e5-2620v4": {"copy_rate": "2.32GB/s", "cores": 1},
    "epyc-vm": {
        "copy_rate": "3.92GB/s",
        "syscall": "2.462us",
        "wakeup": "2.727us",
        "per_packet": "3.139us",
        "cores": 2,
    },
    "xeon-e5-2665": {"wakeup": "18.7us"},
    "xeon-e5-2665-vhost": {"wakeup": "48.7us"},
}
"""Hosts by name. `xeon-e5-2620v4` is fitted on one figure, the median of pytorch/gloo #248: an
all-reduce of 20 MB takes 17,251 us between two such hosts on one core each, over 40 Gb/s; its
`copy_rate` has all that the host does in it, sums and wake-ups too. `epyc-vm` is what `groundwire
doctor --measure-host` found on a virtual machine of two cores (AMD EPYC, Linux 6.18).

`xeon-e5-2665` and `xeon-e5-2665-vhost` are bare metal and a virtual machine of KVM with vhost-net
(Felter et al., IBM RC25482, 2014, section on network latency; ISPASS 2015): over 10 Gb/s a virtual
machine at one end adds 30 us to a request and its response, which is 80%. So these take 37.5 us
between two hosts of bare metal, half of them at each. All of it is put on the wake-up, as a figure
of one packet each way tells no part apart. Copies and packets are free: both sent 9.3 Gb/s."""


def _with_preset(value: object) -> object:
    """The section with what its `preset` stands for; given keys go before that."""
    if not isinstance(value, dict) or not isinstance(value.get("preset"), str):
        return value
    return {**PRESETS.get(value["preset"], {}), **value}


class HostSpec(SpecSection):
    """The time of a host's processors that its ranks' traffic over sockets takes, and of its disk,
    in the virtual kernel; by default none.

    `copy_rate`: bytes a second that one core copies into or out of a socket. `syscall`: each call
    that sends or receives. `wakeup`: each time that a thread which waited for a socket or another
    thread goes on. `per_packet`: each packet that is received, counted by the connection's
    segments. `cores`: how many of these a host does at once (None: any number).
    `interrupt_moderation`: how long a port may hold received packets to hand them up together; it
    is `virtual.receive_coalescing`. `disk_write` and `disk_read`: bytes a second that its one disk
    takes and gives, of files in a program's working directory (None: free). `preset` is a known
    host, for the keys that are not given.
    """

    preset: Literal["xeon-e5-2620v4", "epyc-vm", "xeon-e5-2665", "xeon-e5-2665-vhost"] | None = None
    copy_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="copy_rate", gt=0)
    syscall_ns: TimeNs = Field(default=0, alias="syscall")
    wakeup_ns: TimeNs = Field(default=0, alias="wakeup")
    per_packet_ns: TimeNs = Field(default=0, alias="per_packet")
    interrupt_moderation_ns: TimeNs = Field(default=0, alias="interrupt_moderation")
    cores: Integer | None = Field(default=None, ge=1, le=64)
    disk_write_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="disk_write", gt=0)
    disk_read_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="disk_read", gt=0)

    _preset = model_validator(mode="before")(_with_preset)

    @property
    def charged(self) -> bool:
        """Whether anything of ranks' traffic is charged to their threads."""
        costs = (self.syscall_ns, self.wakeup_ns, self.per_packet_ns)
        return self.copy_bytes_per_s is not None or any(costs)

    @property
    def has_disk(self) -> bool:
        """Whether files take time."""
        return (self.disk_write_bytes_per_s, self.disk_read_bytes_per_s) != (None, None)

    @property
    def preloads(self) -> bool:
        """Whether processes are charged for anything, by a library that they load."""
        return self.charged or self.has_disk

    def described(self) -> str:
        """The charges of traffic, in words."""
        copies = (
            "none" if self.copy_bytes_per_s is None else format_bandwidth(self.copy_bytes_per_s)
        )
        return (
            f"copy_rate {copies}, syscall {format_time(self.syscall_ns)}, "
            f"wakeup {format_time(self.wakeup_ns)}, per_packet {format_time(self.per_packet_ns)}"
        )

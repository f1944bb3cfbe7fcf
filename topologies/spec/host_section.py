"""The `host` section of a spec: the costs of sending, receiving and waking up."""

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
}
"""Hosts by name. `xeon-e5-2620v4` is fitted on one figure, the median of pytorch/gloo #248: an
all-reduce of 20 MB takes 17,251 us between two such hosts on one core each, over 40 Gb/s; its
`copy_rate` has all that the host does in it, sums and wake-ups too. `epyc-vm` is what `groundwire
doctor --measure-host` found on a virtual machine of two cores (AMD EPYC, Linux 6.18)."""


def _with_preset(value: object) -> object:
    """The section with what its `preset` stands for; given keys go before that."""
    if not isinstance(value, dict) or not isinstance(value.get("preset"), str):
        return value
    return {**PRESETS.get(value["preset"], {}), **value}


class HostSpec(SpecSection):
    """The time of a host's processors that its ranks' traffic over sockets takes, in the virtual
    kernel; by default none.

    `copy_rate`: bytes a second that one core copies into or out of a socket. `syscall`: each call
    that sends or receives. `wakeup`: each time that a thread which waited for a socket or another
    thread goes on. `per_packet`: each packet that is received, counted by the connection's
    segments. `cores`: how many of these a host does at once (None: any number).
    `interrupt_moderation`: how long a port may hold received packets to hand them up together; it
    is `virtual.receive_coalescing`. `preset` is a known host, for the keys that are not given.
    """

    preset: Literal["xeon-e5-2620v4", "epyc-vm"] | None = None
    copy_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="copy_rate", gt=0)
    syscall_ns: TimeNs = Field(default=0, alias="syscall")
    wakeup_ns: TimeNs = Field(default=0, alias="wakeup")
    per_packet_ns: TimeNs = Field(default=0, alias="per_packet")
    interrupt_moderation_ns: TimeNs = Field(default=0, alias="interrupt_moderation")
    cores: Integer | None = Field(default=None, ge=1, le=64)

    _preset = model_validator(mode="before")(_with_preset)

    @property
    def charged(self) -> bool:
        """Whether anything is charged to the threads of ranks."""
        costs = (self.syscall_ns, self.wakeup_ns, self.per_packet_ns)
        return self.copy_bytes_per_s is not None or any(costs)

    def described(self) -> str:
        """The charges, in words."""
        copies = (
            "none" if self.copy_bytes_per_s is None else format_bandwidth(self.copy_bytes_per_s)
        )
        return (
            f"copy_rate {copies}, syscall {format_time(self.syscall_ns)}, "
            f"wakeup {format_time(self.wakeup_ns)}, per_packet {format_time(self.per_packet_ns)}"
        )

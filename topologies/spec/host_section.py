"""The `host` section of a spec: the costs of sending, receiving and waking up."""

from __future__ import annotations

from pydantic import Field

from topologies.spec.fabric_section import Integer
from topologies.spec.queue_section import SpecSection
from topologies.units import BytesPerSecond, TimeNs, format_bandwidth, format_time


class HostSpec(SpecSection):
    """The time of a host's processors that its ranks' traffic over sockets takes, in the virtual
    kernel; by default none.

    `copy_rate`: bytes a second that one core copies into or out of a socket. `syscall`: each call
    that sends or receives. `wakeup`: each time that a thread which waited for a socket or another
    thread goes on. `per_packet`: each packet that is received, counted by the connection's
    segments. `cores`: how many of these a host does at once (None: any number).
    `interrupt_moderation`: how long a port may hold received packets to hand them up together; it
    is `virtual.receive_coalescing`.
    """

    copy_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="copy_rate", gt=0)
    syscall_ns: TimeNs = Field(default=0, alias="syscall")
    wakeup_ns: TimeNs = Field(default=0, alias="wakeup")
    per_packet_ns: TimeNs = Field(default=0, alias="per_packet")
    interrupt_moderation_ns: TimeNs = Field(default=0, alias="interrupt_moderation")
    cores: Integer | None = Field(default=None, ge=1, le=64)

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

"""MPTCP: sockets, which the kernel makes of several subflows."""

from workloads.execution.transports.tcp import PART

__all__ = ["PART"]

"""MPTCP in captures: its subflows are put together among TCP's connections
(`analysis/decode/tcp/multipath.py`)."""

from analysis.decode.transports.tcp import PART

__all__ = ["PART"]

"""The one request of ethtool's that the fabric needs: a command with one number (ethtool(8))."""

from __future__ import annotations

import array
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946


def ethtool(control: socket.socket, interface: str, command: int, value: int = 0) -> None:
    """Sends `command` (ETHTOOL_*, include/uapi/linux/ethtool.h) with `value` to an interface of the
    namespace in which `control` was made. Raises OSError."""
    pair = array.array("I", (command, value))  # struct ethtool_value
    address, _ = pair.buffer_info()
    request = struct.pack("16sP", interface.encode(), address)  # struct ifreq
    fcntl.ioctl(control, _SIOCETHTOOL, request)

"""Two requests of ethtool's (ethtool(8)): a command with one number, and the time for which a NIC
holds what it has received."""

from __future__ import annotations

import array
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946
_ETHTOOL_GCOALESCE = 0x0E
_COALESCE_NUMBERS = 23  # struct ethtool_coalesce


def ethtool(control: socket.socket, interface: str, command: int, value: int = 0) -> None:
    """Sends `command` (ETHTOOL_*, include/uapi/linux/ethtool.h) with `value` to an interface of the
    namespace in which `control` was made. Raises OSError."""
    _ask(control, interface, array.array("I", (command, value)))  # struct ethtool_value


def receive_hold_us(control: socket.socket, interface: str) -> int:
    """For how long a NIC holds received packets before it interrupts, in us. Raises OSError: it
    does not say."""
    numbers = array.array("I", [_ETHTOOL_GCOALESCE] + [0] * (_COALESCE_NUMBERS - 1))
    _ask(control, interface, numbers)
    return int(numbers[1])


def _ask(control: socket.socket, interface: str, numbers: array.array[int]) -> None:
    address, _ = numbers.buffer_info()
    request = struct.pack("16sP", interface.encode(), address)  # struct ifreq
    fcntl.ioctl(control, _SIOCETHTOOL, request)

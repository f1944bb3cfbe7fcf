"""Netlink, in batches: many requests in one send, every refusal raised with the kernel's own words.

The messages are pyroute2's (`emulator/linux/messages/`). The sockets are not: its own take 0.6 ms
a namespace and 300 us a message of a batch, and a fabric has thousands of ports.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from emulator.linux.messages.formats import (
    ATTRIBUTE_HEADER,
    MESSAGE_HEADER,
    NETLINK_EXT_ACK,
    NETLINK_ROUTE,
    NLM_F_ACK,
    NLM_F_ACK_TLVS,
    NLM_F_DUMP,
    NLM_F_DUMP_INTR,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    NLMSG_NOOP,
    NLMSGERR_ATTR_MSG,
    REFUSAL,
    SOL_NETLINK,
)
from emulator.linux.messages.template import Template

# Constants that pyroute2 does not name (include/uapi/linux/netlink.h, asm-generic/socket.h).
_NETLINK_ADD_MEMBERSHIP = 1
_NETLINK_CAP_ACK = 10
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_NLA_TYPE_MASK = 0x3FFF

_BUFFER_BYTES = 8 << 20
_CHUNK = 512
"""Requests per send: bounds the answers that wait in the socket's receive buffer."""


class NetlinkError(OSError):
    """A request that the kernel refused. `errno` is the kernel's; the text names the request."""

    def __init__(self, code: int, request: str, explanation: str) -> None:
        text = os.strerror(code)
        if explanation:
            text = f"{text}: {explanation}"
        super().__init__(code, f"{request}: {text}")


@dataclass(frozen=True, slots=True)
class Request:
    """One netlink request. `flags` is without NLM_F_REQUEST; `what` is for error messages."""

    type: int
    flags: int
    payload: bytes
    what: str


def request(template: Template, what: str, *values: int | bytes) -> Request:
    """The request that `template` makes of these values, in order of its blanks."""
    return Request(template.type, template.flags, template.fill(*values), what)


def _header(request: Request, flags: int, sequence: int) -> bytes:
    size = MESSAGE_HEADER.size + len(request.payload)
    return MESSAGE_HEADER.pack(size, request.type, flags, sequence, 0)


def parse_attributes(data: bytes | memoryview, offset: int = 0) -> dict[int, bytes]:
    """Attribute type -> value, of the attributes from `offset` on. The last of a type wins."""
    found: dict[int, bytes] = {}
    end = len(data)
    while offset + 4 <= end:
        length, kind = ATTRIBUTE_HEADER.unpack(data, offset)
        if length < 4 or offset + length > end:
            break
        found[kind & _NLA_TYPE_MASK] = bytes(data[offset + 4 : offset + length])
        offset += (length + 3) & ~3
    return found


class NetlinkSocket:
    """A netlink socket of the network namespace in which the calling thread is when it is opened.

    Raises OSError when the socket cannot be opened.
    """

    def __init__(self, protocol: int = NETLINK_ROUTE) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol
        )
        self._sequence = 0
        for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            except PermissionError:
                break
        for option in (_NETLINK_CAP_ACK, NETLINK_EXT_ACK):
            self._socket.setsockopt(SOL_NETLINK, option, 1)
        self._socket.bind((0, 0))

    def __enter__(self) -> NetlinkSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def join(self, group: int) -> None:
        """Hear what is sent to a group. Such a socket is for `messages` alone. Raises OSError."""
        self._socket.setsockopt(SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, group)

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """The type and the body of each message that has come; waits for one. Raises OSError:
        some were lost (ENOBUFS)."""
        for kind, _, _, body in self._receive():
            yield kind, body

    def execute(
        self,
        requests: Iterable[Request],
        tolerate: Callable[[Request, int], bool] | None = None,
    ) -> None:
        """Sends the requests in order. Raises NetlinkError for the first one that was refused,
        unless `tolerate(request, errno)` says that this refusal is fine. The requests after a
        refused one have been tried too.
        """
        pending = list(requests)
        for start in range(0, len(pending), _CHUNK):
            self._execute_chunk(pending[start : start + _CHUNK], tolerate)

    def _execute_chunk(
        self, chunk: list[Request], tolerate: Callable[[Request, int], bool] | None
    ) -> None:
        # The kernel always answers a refused request; only the last one asks for an answer to
        # success as well. Requests are handled in order, so that answer ends the chunk.
        first = self._sequence + 1
        parts = []
        last = first + len(chunk) - 1
        for sequence, request in enumerate(chunk, first):
            flags = request.flags | NLM_F_REQUEST | (NLM_F_ACK if sequence == last else 0)
            parts += [_header(request, flags, sequence), request.payload]
            padding = -len(request.payload) % 4
            if padding:
                parts.append(b"\0" * padding)
        self._sequence = last
        self._socket.send(b"".join(parts))
        failure: NetlinkError | None = None
        while True:
            for kind, flags, sequence, body in self._receive():
                if kind != NLMSG_ERROR or not first <= sequence <= last:
                    continue
                code = -REFUSAL.unpack(body)[0]
                request = chunk[sequence - first]
                if code and failure is None and not (tolerate and tolerate(request, code)):
                    failure = NetlinkError(code, request.what, _explanation(flags, body))
                if sequence == last:
                    if failure is not None:
                        raise failure
                    return

    def dump(self, request: Request) -> list[bytes]:
        """Sends a dump request and returns the bodies (fixed header and attributes) of the answers.

        Raises NetlinkError. A dump that a concurrent change interrupted is asked again.
        """
        for _ in range(8):
            self._sequence += 1
            flags = request.flags | NLM_F_REQUEST | NLM_F_DUMP
            self._socket.send(_header(request, flags, self._sequence) + request.payload)
            bodies, interrupted = self._collect(request)
            if not interrupted:
                return bodies
        raise NetlinkError(errno.EINTR, request.what, "the kernel's list kept changing")

    def _collect(self, request: Request) -> tuple[list[bytes], bool]:
        bodies: list[bytes] = []
        interrupted = False
        while True:
            for kind, flags, sequence, body in self._receive():
                if sequence != self._sequence:
                    continue
                interrupted |= bool(flags & NLM_F_DUMP_INTR)
                if kind == NLMSG_ERROR:
                    code = -REFUSAL.unpack(body)[0]
                    raise NetlinkError(code, request.what, _explanation(flags, body))
                if kind == NLMSG_DONE:
                    return bodies, interrupted
                if kind != NLMSG_NOOP:
                    bodies.append(body)

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        data = self._socket.recv(1 << 18)
        offset = 0
        while offset + MESSAGE_HEADER.size <= len(data):
            length, kind, flags, sequence, _ = MESSAGE_HEADER.unpack(data, offset)
            if length < MESSAGE_HEADER.size:
                break
            yield kind, flags, sequence, data[offset + MESSAGE_HEADER.size : offset + length]
            offset += (length + 3) & ~3


def _explanation(flags: int, body: bytes) -> str:
    """The extended acknowledgement's message, which says in words what the kernel did not like."""
    if not flags & NLM_F_ACK_TLVS:
        return ""
    # With NETLINK_CAP_ACK an error carries the code and the request's header only.
    message = parse_attributes(body, REFUSAL.size + MESSAGE_HEADER.size).get(NLMSGERR_ATTR_MSG, b"")
    return message.rstrip(b"\0").decode(errors="replace")

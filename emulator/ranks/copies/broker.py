"""The thread that has ranks' copies take their time.

It runs in the process of the experiment, which lives in the same kernel as the ranks: posts and
answers take no virtual time. Nothing depends on the order in which posts of one nanosecond come.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from emulator.network.network import Network
from emulator.network.samples import CarriedSpan
from emulator.ranks.copies.place import COPIES_FILE, socket_of
from emulator.ranks.copies.ports import Copy, CopyPorts
from topologies.fabrics.copies import CopyPaths
from workloads.execution.copies.place import MOST_OVER, OVER, POST

_SO_PEERCRED = socket.SO_PEERCRED
_CREDENTIALS = struct.Struct("3i")
_LONGEST_POST = 4096
_PIECE_BYTES = 1 << 24
_TFD_TIMER_ABSTIME = 1

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(eq=False, slots=True)
class _Client:
    """A participant: its socket, and the memory of its process, opened when it is first needed."""

    socket: socket.socket
    memory: int | None = None
    over: list[int] = field(default_factory=list)

    def memory_of_process(self) -> int:
        """Raises OSError."""
        if self.memory is None:
            found = self.socket.getsockopt(socket.SOL_SOCKET, _SO_PEERCRED, _CREDENTIALS.size)
            pid, _, _ = _CREDENTIALS.unpack(found)
            self.memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
        return self.memory

    def close(self) -> None:
        self.socket.close()
        if self.memory is not None:
            os.close(self.memory)


@dataclass(frozen=True, slots=True)
class _End:
    """An end of a message that is posted."""

    client: _Client
    sends: bool
    links: tuple[int, int]
    size_bytes: int
    address: int
    posted_ns: int
    number: int


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both ends of a message."""

    sender: _End
    receiver: _End


class CopyBroker:
    """Serves the ends of copies. `moves`: data goes from one's memory to the other's, else nobody
    looks at it. It ends with its block."""

    def __init__(self, paths: CopyPaths, at: Path, moves: bool) -> None:
        """Raises OSError."""
        self._ports = CopyPorts(paths.rate_bps, paths.delay_ns)
        self._moves = moves
        self._waiting: dict[tuple[bytes, int], _End] = {}
        self._under_way: dict[int, _Pair] = {}
        self._done: list[Copy] = []
        self._error: OSError | None = None
        self._timer_ns = 0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(at))
        self._listener.listen(4096)
        self._timer = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
        self._ends, self._end = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for each in (self._listener, self._timer, self._ends):
            self._selector.register(each, selectors.EVENT_READ)
        self._thread = Thread(target=self._serve, name="copies", daemon=True)

    @classmethod
    @contextmanager
    def serving(cls, network: Network, moves: bool) -> Iterator[Copies]:
        """Inside of the block participants can post, where the fabric has copies. Raises
        OSError."""
        paths = CopyPaths.of(network.fabric)
        if paths is None:
            yield Copies(None)
            return
        broker = cls(paths, socket_of(network), moves)
        broker._thread.start()
        try:
            yield Copies(broker)
        finally:
            broker._end.send(b"1")
            broker._thread.join()

    @property
    def done(self) -> list[Copy]:
        """The copies that are complete, in the order of their ends. Raises OSError when it has
        failed."""
        if self._error is not None:
            raise self._error
        return self._done

    @property
    def spans(self) -> dict[int, list[CarriedSpan]]:
        """The copies that each directed link has carried, in order of time."""
        return self._ports.spans

    def _serve(self) -> None:
        try:
            while self._take():
                self._set_timer(self._ports.next_ns())
        except OSError as error:
            self._error = error
        finally:
            # Those that wait for a copy are then told that there will be none.
            for key in list(self._selector.get_map().values()):
                if isinstance(key.data, _Client):
                    key.data.close()
            self._listener.close()
            self._selector.close()
            os.close(self._timer)

    def _take(self) -> bool:
        """Take what has come, and wait for something; whether to go on. Nothing is asked for that
        is not there, and the clock only when the timer goes off: a process that asks again and
        again would rest (docs/virtual-kernel.md)."""
        for key, _ in self._selector.select():
            if key.fileobj is self._ends:
                return False
            if key.fileobj == self._timer:
                os.read(self._timer, 8)
                self._timer_ns = 0
                self._tell(self._ports.complete(time.monotonic_ns()))
            elif key.fileobj is self._listener:
                client = _Client(self._listener.accept()[0])
                self._selector.register(client.socket, selectors.EVENT_READ, client)
            else:
                self._hear(key.data)
        return True

    def _hear(self, client: _Client) -> None:
        try:
            post = client.socket.recv(_LONGEST_POST)
        except ConnectionResetError:
            post = b""
        if post:
            self._post(client, post)
        else:
            self._selector.unregister(client.socket)
            client.close()

    def _post(self, client: _Client, post: bytes) -> None:
        sends, first, second, size_bytes, address, posted_ns, number, slot = POST.unpack_from(post)
        own = _End(client, sends, (first, second), size_bytes, address, posted_ns, number)
        name = post[POST.size :]
        other = self._waiting.pop((name, slot), None)
        if other is None:
            self._waiting[name, slot] = own
            return
        pair = _Pair(own, other) if sends else _Pair(other, own)
        ready_ns = max(own.posted_ns, other.posted_ns)
        copy = Copy(name.decode(), slot, first, second, size_bytes, ready_ns)
        self._under_way[id(copy)] = pair
        self._ports.add(copy)

    def _tell(self, complete: Sequence[Copy]) -> None:
        """Have these copies' data be there, and both their ends know."""
        told: dict[_Client, None] = {}
        for copy in complete:
            pair = self._under_way.pop(id(copy))
            self._done.append(copy)
            if self._moves:
                _move(pair.sender, pair.receiver)
            for end in (pair.sender, pair.receiver):
                end.client.over.append(end.number)
                told[end.client] = None
        for client in told:
            over, client.over = client.over, []
            for at in range(0, len(over), MOST_OVER):
                with suppress(BrokenPipeError, ConnectionResetError):  # it has ended
                    client.socket.send(b"".join(map(OVER.pack, over[at : at + MOST_OVER])))

    def _set_timer(self, at_ns: int | None) -> None:
        """Have the timer go off then, to the nanosecond: it has no slack. It is off at 0."""
        if (at_ns or 0) == self._timer_ns:
            return
        self._timer_ns = at_ns or 0
        when = struct.pack("qqqq", 0, 0, *divmod(self._timer_ns, 10**9))
        if _libc.timerfd_settime(self._timer, _TFD_TIMER_ABSTIME, when, None) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def _move(sender: _End, receiver: _End) -> None:
    """Move a message's data from the memory of one process to that of another. Raises OSError."""
    source, target = sender.client.memory_of_process(), receiver.client.memory_of_process()
    for at in range(0, sender.size_bytes, _PIECE_BYTES):
        left = min(_PIECE_BYTES, sender.size_bytes - at)
        piece = os.pread(source, left, sender.address + at)
        os.pwrite(target, piece, receiver.address + at)


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of a run; none where nothing is copied."""

    broker: CopyBroker | None

    @property
    def spans(self) -> dict[int, list[CarriedSpan]]:
        """By directed link, what it has carried."""
        return {} if self.broker is None else self.broker.spans

    def carried(self) -> dict[int, dict[str, int]]:
        """By directed link, as links.jsonl names it: how many copies it has carried, of how many
        bytes, and how long it was busy with them."""
        return {
            link: {
                "copies": len(spans),
                "copied_bytes": sum(span.size_bytes for span in spans),
                "copying_ns": sum(span.end_ns - span.begin_ns for span in spans),
            }
            for link, spans in self.spans.items()
        }

    def write(self, run_directory: Path) -> None:
        """Leave them in a run directory. Raises OSError."""
        if self.broker is None:
            return
        with (run_directory / COPIES_FILE).open("w") as file:
            for copy in self.broker.done:
                group, source, destination = copy.group.rsplit(" ", 2)
                line = {
                    "group": group,
                    "slot": copy.slot,
                    "source": int(source),
                    "destination": int(destination),
                    "links": [link for link in (copy.first, copy.second) if link >= 0],
                    "bytes": copy.size_bytes,
                    "ready_ns": copy.ready_ns,
                    "begin_ns": copy.begins_ns,
                    "end_ns": copy.ends_ns,
                }
                file.write(json.dumps(line, separators=(",", ":")) + "\n")

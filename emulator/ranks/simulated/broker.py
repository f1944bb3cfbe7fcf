"""The process that has the simulated network: takes posts of ranks, tells the engine, sleeps until
its next event, and wakes the ranks.

    python -m emulator.ranks.simulated.broker DIRECTORY

The guest's clock leads. Once the guest has been idle for a nanosecond, nobody does anything before
the first timer of its kernel: so far the engine goes ahead, or to the first part that is over
before that. This process sleeps until then. So it is never behind, and a post never comes before
what the engine has followed (`early`, which is counted, says otherwise).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import selectors
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from collectives.carried import CarriedSection
from emulator.linux.signals import end_with_parent
from emulator.progress import Progress
from emulator.ranks.simulated.collective import PartsOfCollectives, Post, UnknownPost
from emulator.ranks.simulated.files import COUNTERS, ENGINE, MESHES, NETWORK, SECTION, SOCKET
from emulator.ranks.simulated.meshes import MeshesOfGroups
from simulation.columns import unpack
from simulation.driven_engine import DrivenEngine
from simulation.failure import SimulationError
from workloads.observer.traffic import sent_bytes

OVER = "1"
"""How an answer begins that a part is over; behind it is how it ran, as JSON, where not by Gloo's
own way. Other answers are words of what is wrong."""
_ANSWER_BYTES = 4000
_POST_BYTES = 1 << 20
_TFD_TIMER_ABSTIME = 1
_TFD_NONBLOCK = os.O_NONBLOCK
_STAT_BYTES = 1 << 20
_IDLE_SWITCHES = 3
"""From this process to the idle one, and back, with a kernel thread between."""
_TOLD_EVERY = 64
"""So many parts of ranks that are over are told of at once."""
_MOST_LOOKS = 64
"""After so many nanoseconds in a row it goes on: a program that does something in each of them does
so for ever."""
_TIMERS = re.compile(rb"\.offset: +(\d+)|expires at (\d+)-")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class _Exchange:
    """A collective, or a message, of which some have posted their parts."""

    alike: tuple[object, ...]
    first_tag: int
    members: int
    posted: int = 0
    left: int = 0
    """Those that have posted, have been told, and have taken what they came for."""


@dataclass(eq=False, slots=True)
class _Caller:
    """A rank's part, and the socket by which it waits for its end."""

    socket: socket.socket
    post: Post | None = None


@dataclass(slots=True)
class Broker:
    """The state of the process: posts that are new, parts that run, and those that are over."""

    directory: Path
    engine: DrivenEngine
    listener: socket.socket
    meshes: MeshesOfGroups
    section: CarriedSection
    early: int = 0
    _parts: PartsOfCollectives = field(init=False)
    _exchanges: dict[tuple[str, str], _Exchange] = field(default_factory=dict)
    _new: list[_Caller] = field(default_factory=list)
    _running: int = 0
    _due: list[_Caller] = field(default_factory=list)
    _pools: dict[tuple[str, int], int] = field(default_factory=dict)
    """The number of each rank's threads in a group."""
    _tags: int = 0
    _timer: int = field(init=False)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _load: int = field(init=False)
    _stat: int = field(init=False)
    _looked: int | None = None
    """How many switches between processes there were at the last look (proc(5), stat)."""
    _looks: int = 0
    _ends: bool = False
    _over: int = 0
    _sent_bytes: int = 0

    def __post_init__(self) -> None:
        self._parts = PartsOfCollectives(self.engine, self.section)
        self._timer = _libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_NONBLOCK)
        self._load = os.open("/proc/loadavg", os.O_RDONLY)
        self._stat = os.open("/proc/stat", os.O_RDONLY)
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._selector.register(self._timer, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until standard input is closed."""
        while not self._ends:
            self._take(None)
            try:
                self._go_on()
            except SimulationError as error:
                self._tell_all(str(error))
                raise

    def _go_on(self) -> None:
        """Do all that can be done before time goes on."""
        while not self._ends:
            others_ran = self._others_run()
            if others_ran:
                os.sched_yield()
            self._take(0)  # after that look: what others have posted by then is there
            now_ns = time.monotonic_ns()
            if self._due and self.engine.now_ns <= now_ns:
                self._tell_due()
            elif self._new:
                if self.engine.now_ns < now_ns:
                    self.engine.run_to_call(now_ns)
                if not self._due or self.engine.now_ns > now_ns:
                    self._begin(now_ns)
                    self._looked = None
                if not self._due:
                    self.engine.run_to_call(self.engine.now_ns)
            elif not self._running and not self._due:
                return
            elif others_ran and not self._due:
                self._looked = None
            else:
                self._sleep_until(self._wakes_ns(now_ns))
                return

    def _wakes_ns(self, now_ns: int) -> int:
        """When to go on, as far as is known: when a part is over, or somebody else may do
        something, up to which the engine goes."""
        if not self._due:
            if not self._is_calm():
                return now_ns + 1
            next_ns = self._next_timer_ns(now_ns)
            self.engine.run_to_call(max(next_ns - 1, now_ns, self.engine.now_ns))
            if not self._due:
                return next_ns
        return self.engine.now_ns

    # -- posts -------------------------------------------------------------------------------------

    def _take(self, timeout_s: float | None) -> None:
        """Take what has come. None: wait for something."""
        for key, _ in self._selector.select(timeout_s):
            if key.fd == 0:
                self._ends = True
            elif key.fd == self._timer:
                with suppress(BlockingIOError):
                    os.read(self._timer, 8)
            elif key.fileobj is self.listener:
                with suppress(BlockingIOError):
                    while True:
                        caller = _Caller(self.listener.accept()[0])
                        self._selector.register(caller.socket, selectors.EVENT_READ, caller)
            else:
                self._hear(key.data)

    def _hear(self, caller: _Caller) -> None:
        line = caller.socket.recv(_POST_BYTES)
        if not line:
            self._selector.unregister(caller.socket)
            caller.socket.close()
            if caller.post is not None:
                self._leave(caller.post)
            return
        found = json.loads(line)
        if "handshakes" in found:
            self._connect(**found)
            return
        for name in ("ranks", "sends", "receives"):
            found[name] = tuple(found[name])
        caller.post = Post(**found)
        self._new.append(caller)

    def _connect(
        self, group: str, member: int, ranks: Sequence[int], handshakes: Sequence[Sequence[int]]
    ) -> None:
        """A rank has connected with others of a group. Connections of the mesh that an earlier
        group has used keep what they have (`DrivenEngine.shook_hands`)."""
        ends = self.meshes.ends(group, ranks)
        for peer, handshake_us, greeting_us in handshakes:
            self.engine.shook_hands(ends[member], ends[peer], handshake_us, greeting_us)

    def _begin(self, now_ns: int) -> None:
        """Have the engine do all that is new."""
        callers, self._new = self._new, []
        if self.engine.now_ns > now_ns:
            self.early += len(callers)
        for caller in callers:
            post = caller.post
            assert post is not None
            try:
                exchange = self._exchange(post)
                part = self._parts.number(post)
            except UnknownPost as error:
                self._answer(caller, str(error))
                continue
            self._running += 1
            over = partial(self._is_over, caller)
            ends = self.meshes.ends(post.group, post.ranks)
            pool = self._pools.setdefault((post.group, post.member), len(self._pools))
            self.engine.begin(part, ends, exchange.first_tag, over, pool)

    def _exchange(self, post: Post) -> _Exchange:
        key = post.group, post.name
        found = self._exchanges.get(key)
        if found is None:
            found = _Exchange(post.alike, self._tags, post.members)
            self._tags += self._parts.tags(post)
            self._exchanges[key] = found
        found.posted += 1
        if found.alike != post.alike:
            raise UnknownPost(
                f"rank {post.ranks[post.member]} posts {post.kind} of {post.size_bytes} bytes "
                f"as number {post.name} of its group, another rank {found.alike[0]}"
            )
        return found

    def _leave(self, post: Post) -> None:
        """A rank has taken what it came for; once all have, nobody reads what they gave."""
        key = post.group, post.name
        exchange = self._exchanges[key]
        exchange.left += 1
        if exchange.left == exchange.members:
            del self._exchanges[key]
            ends = (post.member, post.root) if post.is_message else range(len(post.ranks))
            for member in ends:
                with suppress(FileNotFoundError):
                    os.unlink(self.directory / f"{post.group}.{post.name}.{member}")

    # -- ends --------------------------------------------------------------------------------------

    def _is_over(self, caller: _Caller) -> None:
        self._running -= 1
        self._due.append(caller)
        post = caller.post
        assert post is not None
        self._sent_bytes += sent_bytes(post.kind, post.size_bytes, len(post.ranks))
        self._over += 1
        if self._over % _TOLD_EVERY == 0:
            print(Progress("sent", sent_bytes=self._sent_bytes).encode(), flush=True)

    def _tell_due(self) -> None:
        callers, self._due = self._due, []
        for caller in callers:
            assert caller.post is not None
            told = self._parts.told(caller.post)
            self._answer(caller, OVER + (json.dumps(told) if told else ""))

    def _tell_all(self, words: str) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, _Caller):
                self._answer(key.data, f"the simulated network: {words}")

    def _answer(self, caller: _Caller, words: str) -> None:
        with suppress(OSError):  # it has ended
            caller.socket.send(words.encode()[:_ANSWER_BYTES])

    # -- time --------------------------------------------------------------------------------------

    def _others_run(self) -> bool:
        """Whether any process but this one could run now (proc(5), loadavg)."""
        return int(os.pread(self._load, 100, 0).split()[3].split(b"/")[0]) > 1

    def _is_calm(self) -> bool:
        """Whether nobody else has run since the last look, a nanosecond ago: the kernel has been
        idle since, and has gone on with processes that rest until it is (docs/virtual-kernel.md).
        Else this is a first look."""
        text = os.pread(self._stat, _STAT_BYTES, 0)
        switches = int(text[text.index(b"\nctxt ") + 6 :].split(None, 1)[0])
        looked, self._looked = self._looked, switches
        self._looks += 1
        calm = looked is not None and switches <= looked + _IDLE_SWITCHES
        if calm or self._looks > _MOST_LOOKS:
            self._looked, self._looks = None, 0
            return True
        return False

    def _next_timer_ns(self, now_ns: int) -> int:
        """When the first timer of the kernel goes off, its tick among them: nobody else does
        anything before."""
        offset_ns, first_ns = 0, None
        with open("/proc/timer_list", "rb", buffering=0) as file:
            for offset, at in _TIMERS.findall(file.read()):
                if offset:
                    offset_ns = int(offset)
                elif first_ns is None or int(at) - offset_ns < first_ns:
                    first_ns = int(at) - offset_ns
        assert first_ns is not None, "a kernel without a tick"
        return max(first_ns, now_ns + 1)

    def _sleep_until(self, at_ns: int) -> None:
        """Have the timer go off then, to the nanosecond: it has no slack."""
        when = struct.pack("qqqq", 0, 0, *divmod(at_ns, 10**9))
        if _libc.timerfd_settime(self._timer, _TFD_TIMER_ABSTIME, when, None) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def main(arguments: Sequence[str]) -> None:
    """Serve until standard input is closed, then leave the counters."""
    end_with_parent()
    directory = Path(arguments[0])
    # It runs when all others wait: then all posts of a nanosecond are there.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    network = unpack((directory / NETWORK).read_bytes())
    with DrivenEngine(network, program=(directory / ENGINE).read_text()) as engine:
        listener.bind(str(directory / SOCKET))
        listener.listen(4096)
        listener.setblocking(False)
        ranks = (int(network["pair.source"].max()) + 1) // MESHES
        section = CarriedSection.from_json((directory / SECTION).read_text())
        broker = Broker(directory, engine, listener, MeshesOfGroups(ranks, MESHES), section)
        broker.serve()
        timeline = engine.finish()
    left = {
        "early_posts": broker.early,
        "packets": timeline.packets,
        "hops": timeline.hops,
        "retransmits": sum(end.retransmitted for end in timeline.ends.values()),
        "ports": {
            name: timeline.columns[f"port.{name}"].tolist()
            for name in ("bytes", "packets", "drops", "marks")
        },
    }
    (directory / COUNTERS).write_text(json.dumps(left))


if __name__ == "__main__":
    main(sys.argv[1:])

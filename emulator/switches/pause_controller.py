"""The pauses of lossless queues on the native kernel: a process that closes and opens plugs.

The counters (`emulator/switches/memory.py`) say, packet by packet, which ingress port is above
XOFF. The controller looks at them all the time, and closes the plug (sch_plug) of the neighbour's
port when a pause frame would have stopped it: after its serialisation and propagation. How long it
took from XOFF to the closed plug is measured for every pause, and belongs to the run's verdict:
what arrives until then must fit into the headroom.
"""

from __future__ import annotations

import heapq
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from emulator.linux.bpf import share_array
from emulator.linux.messages import formats
from emulator.linux.namespaces import entered
from emulator.linux.netlink import NetlinkSocket, Request
from emulator.linux.real_time import use_real_time_priority
from emulator.linux.rtnetlink import change_qdisc
from emulator.linux.signals import end_with_parent
from emulator.ports.pauses import Reaction
from emulator.switches.memory import ENTRY_BYTES, WORDS, SwitchMemory, Word, entry
from topologies.fabrics.fabric import PAUSE_FRAME_WIRE_BYTES, Link

_BUFFER, _RELEASE_INDEFINITE = 0, 2
_SHORTEST_PERIOD_NS, _LONGEST_PERIOD_NS = 20_000, 500_000
_GUARD_NS = 200_000
"""By how much a plug is closed before a pause frame would have come, so that waking up late and
the kernel's answer do not make it later than that."""


@dataclass(frozen=True, slots=True)
class Plug:
    """The plug that a class of a lossless ingress port closes: qdisc `handle` below `parent` of the
    interface `ifindex` in the namespace `netns`.

    `ingress` and `egress` are port numbers, `port` names the ingress. A pause frame takes
    `travel_ns` from the one to the other; `allowed_ns` after XOFF is the last moment at which the
    plug may close, see `allowed_reaction_ns`. `suffices`: the headroom is all that the link needs.
    """

    ingress: int
    egress: int
    priority: int
    port: str
    netns: str
    ifindex: int
    parent: int
    handle: int
    travel_ns: int
    allowed_ns: int
    suffices: bool


def travel_ns(link: Link) -> int:
    """The time of a pause frame on an idle link: serialisation and propagation."""
    return link.delay_ns + PAUSE_FRAME_WIRE_BYTES * 8 * 10**9 // link.rate_bps


def allowed_reaction_ns(link: Link, headroom_bytes: int) -> int:
    """From XOFF to the closed plug, at most, so that the headroom holds what comes meanwhile: at
    the link's rate for the reaction and the propagation, and three frames (the one that passed
    XOFF, the one that the receiver's delay line serialises, and the one that the shaper has in its
    hand and still sends). Where the spec's own headroom is smaller than a pause frame needs,
    losses are the spec's and the pause frame's time is what is allowed.
    """
    frames = 3 * link.frame_bytes
    fills_ns = (headroom_bytes - frames) * 8 * 10**9 // link.rate_bps
    return max(travel_ns(link), fills_ns - link.delay_ns)


def plug_request(ifindex: int, parent: int, handle: int, closed: bool, name: str) -> Request:
    """Closes or opens a plug."""
    action = formats.PLUG.fill(_BUFFER if closed else _RELEASE_INDEFINITE, 0)
    return change_qdisc(ifindex, "plug", parent, handle, action, name)


class PauseController:
    """The process, from `start` to `stop`."""

    def __init__(self, memory: SwitchMemory, plugs: Sequence[Plug]) -> None:
        self._memory = memory
        self._plugs = plugs
        travel = min(plug.travel_ns for plug in plugs)
        self.period_ns = min(max(travel // 20, _SHORTEST_PERIOD_NS), _LONGEST_PERIOD_NS)
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts the process; when this returns, it watches. Raises OSError."""
        # The same modules as here, also where Python runs without its site.
        program = f"import sys; sys.path[:] = {sys.path!r}\n"
        program += "from emulator.switches.pause_controller import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[self._memory.descriptor],
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        orders = {
            "descriptor": self._memory.descriptor,
            "entries": self._memory.entries,
            "period_ns": self.period_ns,
            "plugs": [asdict(plug) for plug in self._plugs],
        }
        self._process.stdin.write(json.dumps(orders) + "\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "watching\n":
            self.stop()
            raise OSError("the pause controller of the lossless queues could not be started")

    def stop(self) -> None:
        """Ends the process. Can be called again."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> PauseController:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process's id, None when there is none."""
        return self._process.pid if self._process is not None else None

    def reaction(self) -> Reaction | None:
        """The measurements so far; None before the first pause."""

        def read(plug: Plug, word: Word) -> int:
            return self._memory.read(plug.ingress, word, plug.priority)

        paused = [plug for plug in self._plugs if read(plug, Word.REACTIONS)]
        if not paused:
            return None
        count = sum(read(plug, Word.REACTIONS) for plug in paused)
        worst = max(paused, key=lambda plug: read(plug, Word.REACTION_WORST) / plug.allowed_ns)
        return Reaction(
            count,
            sum(read(plug, Word.REACTION_SUM) for plug in paused) // count,
            read(worst, Word.REACTION_WORST),
            worst.allowed_ns,
            self.period_ns,
            worst.port,
        )

    def lost(self) -> int:
        """Packets for which there was no headroom left though there is all that the link needs:
        they came late, by pauses or by delay lines."""
        return sum(
            self._memory.read(plug.ingress, Word.INGRESS_LOST, plug.priority)
            for plug in self._plugs
            if plug.suffices
        )

    def held(self) -> dict[int, tuple[int, int]]:
        """Egress port number -> (how many of its plugs are closed, how often one was closed)."""
        return {
            plug.egress: (
                self._memory.read(plug.egress, Word.PAUSED),
                self._memory.read(plug.egress, Word.PAUSES),
            )
            for plug in self._plugs
        }


# -- the process -----------------------------------------------------------------------------------


class _Loop:
    """Mirrors what ingress ports want onto plugs, each after its pause frame's travel."""

    def __init__(
        self, words: memoryview, plugs: Sequence[Plug], sockets: dict[str, NetlinkSocket]
    ) -> None:
        self._words = words
        self._plugs = plugs
        self._sockets = sockets
        self._wanted = [0] * len(plugs)
        self._xoffs = [0] * len(plugs)
        self._changes = 0
        self._due: list[tuple[int, int, int, int]] = []
        """(when, plug, closed, since XOFF or XON was passed), a heap."""

    def look(self) -> int:
        """Does what is due. Returns when to look again at the latest, or 0 for any time."""
        words = self._words
        changes = words[Word.CHANGES]
        if changes != self._changes:
            self._changes = changes
            for index, plug in enumerate(self._plugs):
                at = entry(plug.ingress, plug.priority) * WORDS
                wanted, xoffs = words[at + Word.WANTED], words[at + Word.XOFFS]
                missed = xoffs != self._xoffs[index]
                self._xoffs[index] = xoffs
                if wanted == self._wanted[index]:
                    if missed and not wanted:
                        self._note_missed(plug)
                    continue
                self._wanted[index] = wanted
                since = words[at + (Word.XOFF_AT if wanted else Word.XON_AT)]
                when = since + max(0, plug.travel_ns - _GUARD_NS)
                heapq.heappush(self._due, (when, index, wanted, since))
        while self._due and self._due[0][0] <= time.monotonic_ns():
            _, index, wanted, since = heapq.heappop(self._due)
            self._set(self._plugs[index], bool(wanted), since)
        return self._due[0][0] if self._due else 0

    def _set(self, plug: Plug, closed: bool, since_ns: int) -> None:
        request = plug_request(plug.ifindex, plug.parent, plug.handle, closed, plug.port)
        self._sockets[plug.netns].execute([request])
        now = time.monotonic_ns()
        words, port = self._words, entry(plug.egress, 0) * WORDS
        ingress = entry(plug.ingress, plug.priority) * WORDS
        words[entry(plug.egress, plug.priority) * WORDS + Word.CLASS_PAUSED] = closed
        if closed:
            self._note(ingress, now - since_ns)
            if not words[port + Word.PAUSED]:
                words[port + Word.PAUSED_SINCE] = now
            words[port + Word.PAUSED] += 1
            words[port + Word.PAUSES] += 1
        else:
            words[port + Word.PAUSED] -= 1
            if not words[port + Word.PAUSED]:
                words[port + Word.PAUSED_NS] += now - words[port + Word.PAUSED_SINCE]

    def _note_missed(self, plug: Plug) -> None:
        """A whole pause came and went between two looks. It was late by as long as it lasted,
        unless the resuming frame would have come right behind the pausing one."""
        at = entry(plug.ingress, plug.priority) * WORDS
        lasted = self._words[at + Word.XON_AT] - self._words[at + Word.XOFF_AT]
        if lasted > plug.travel_ns:
            self._note(at, lasted)

    def _note(self, ingress: int, took_ns: int) -> None:
        words = self._words
        words[ingress + Word.REACTIONS] += 1
        words[ingress + Word.REACTION_SUM] += took_ns
        words[ingress + Word.REACTION_WORST] = max(took_ns, words[ingress + Word.REACTION_WORST])


def main() -> None:
    """Reads its orders from standard input and works until it is killed, or its parent ends."""
    end_with_parent()
    orders = json.loads(sys.stdin.readline())
    plugs = [Plug(**plug) for plug in orders["plugs"]]
    words = share_array(orders["descriptor"], orders["entries"], ENTRY_BYTES)
    period_ns: int = orders["period_ns"]
    with ExitStack() as stack:
        sockets = {}
        for netns in {plug.netns for plug in plugs}:
            with entered(Path(netns)):
                sockets[netns] = stack.enter_context(NetlinkSocket())
        use_real_time_priority()
        loop = _Loop(words, plugs, sockets)
        print("watching", flush=True)
        while True:
            due_ns = loop.look()
            wait_ns = period_ns
            if due_ns:
                wait_ns = min(wait_ns, max(0, due_ns - time.monotonic_ns()))
            time.sleep(wait_ns / 1e9)

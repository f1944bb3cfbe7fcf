"""Watches a native run from a thread of its own: little work per sample, so as not to be the load
that it looks for."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack

from emulator.fidelity.sources import (
    QueueService,
    busiest_share,
    read_cores,
    read_ports,
    read_run_delays_ns,
    stolen_share,
)
from emulator.fidelity.thresholds import SATURATED_BUSY, THRESHOLDS, with_reaction_limit
from emulator.fidelity.verdict import Figures, Verdict, judge
from emulator.netlink import NetlinkSocket
from emulator.network import Network
from emulator.ports import PortContext
from emulator.switch_memory import port_number
from topologies.fabric import L1_OVERHEAD_BYTES

_SAMPLE_S = 0.25
"""Long enough for 25 ticks of a 100 Hz kernel, so that 98% busy can be told from less."""
_TIMERS_PER_SAMPLE = 24
_PAIR_NS = 2_000_000
"""Between the two readings of a port: shorter than a buffer of 4 MB lasts at 10 Gb/s."""


class FidelityMonitor:
    """Watches from `start` to `stop`; `verdict` judges afterwards.

    With `real_time=False` (the virtual kernel, where no processor can be too slow) there is no
    thread, and only losses are judged.
    """

    def __init__(self, network: Network, real_time: bool = True) -> None:
        self._network = network
        self._real_time = real_time
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._samples = 0
        self._saturated = 0
        self._stolen: float | None = None
        self._late_ns: list[int] = []
        self._service = QueueService()
        self._ranks: dict[int, dict[int, int]] = {}
        self._waited_ns = 0
        self._watched_since = 0
        self._watched_ns = 0

    def start(self, rank_pids: Iterable[int] = ()) -> None:
        """Begins to watch, at the start of the workload: connecting and importing do not count."""
        if not self._real_time:
            return
        self._watched_since = time.monotonic_ns()
        self._ranks = {pid: read_run_delays_ns(pid) for pid in rank_pids}
        self._thread = threading.Thread(target=self._watch, name="fidelity", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch; at the latest before the network goes down. Can be called again."""
        if self._thread is None:
            return
        self._stopping.set()
        self._thread.join()
        self._thread = None
        self._watched_ns = time.monotonic_ns() - self._watched_since

    def verdict(self, capture_drops: int | None = None) -> Verdict:
        """The verdict on what was seen. The network must still be up."""
        self.stop()
        known = any(self._ranks.values()) and self._watched_ns
        controller = self._network.pause_controller
        reaction = controller.reaction() if controller is not None else None
        return judge(
            Figures(
                saturated_share=self._saturated / self._samples if self._samples else None,
                steal_share=self._stolen,
                softnet_drops=self._network.softnet_drops(),
                lost_outside_queues=sum(
                    port.lost_outside_queue for port in self._network.port_counters()
                ),
                queue_lateness=self._service.lateness,
                rank_delay_share=self._waited_ns / self._watched_ns if known else None,
                timer_lateness_ns=late_percentile(self._late_ns, 99),
                capture_drops=capture_drops,
                pause_reaction_ns=reaction.worst_ns if reaction is not None else None,
            ),
            with_reaction_limit(reaction.allowed_ns) if reaction is not None else THRESHOLDS,
        )

    # -- in the thread -----------------------------------------------------------------------------

    def _watch(self) -> None:
        first = before = read_cores()
        nodes = itertools.cycle(node.name for node in self._network.fabric.nodes)
        with ExitStack() as stack:
            sockets: dict[str, NetlinkSocket] = {}
            while not self._stopping.is_set():
                self._time_some_timers()
                node = next(nodes)
                if node not in sockets:
                    sockets[node] = stack.enter_context(self._network.netlink(node))
                self._look_at_queues(node, sockets[node])
                self._look_at_ranks()
                after = read_cores()
                if self._stopping.is_set() and self._samples:
                    break  # a sample cut short has too few ticks to judge by
                self._samples += 1
                self._saturated += busiest_share(before, after) >= SATURATED_BUSY
                self._stolen = stolen_share(first, after)
                before = after

    def _time_some_timers(self) -> None:
        pause = _SAMPLE_S / _TIMERS_PER_SAMPLE
        for _ in range(_TIMERS_PER_SAMPLE):
            start = time.monotonic_ns()
            time.sleep(pause)
            self._late_ns.append(time.monotonic_ns() - start - round(pause * 1e9))
            if self._stopping.is_set():
                return

    def _look_at_queues(self, node: str, netlink: NetlinkSocket) -> None:
        contexts: Sequence[PortContext] = self._network.contexts(node)
        controller = self._network.pause_controller
        held = controller.held() if controller is not None else {}
        before = read_ports(netlink, contexts, time.monotonic_ns())
        time.sleep(_PAIR_NS / 1e9)
        after = read_ports(netlink, contexts, time.monotonic_ns())
        if controller is not None:
            contexts = [c for c in contexts if was_free(c, held, controller.held())]
        self._service.add(contexts, before, after, L1_OVERHEAD_BYTES)

    def _look_at_ranks(self) -> None:
        for pid, before in self._ranks.items():
            for thread, waited in read_run_delays_ns(pid).items():
                self._waited_ns = max(self._waited_ns, waited - before.get(thread, 0))


def was_free(
    context: PortContext,
    before: Mapping[int, tuple[int, int]],
    after: Mapping[int, tuple[int, int]],
) -> bool:
    """Whether a port's plug (`PauseController.held`) was open all the time between two looks."""
    number = port_number(context.link, context.port)
    return number not in before or (before[number] == after[number] and not before[number][0])


def late_percentile(values: list[int], percent: int) -> int | None:
    """The percentile (nearest rank), but never the single worst value: one hiccup in a short run
    is no percentile. None when there are fewer than two."""
    if len(values) < 2:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 2, len(ordered) * percent // 100)]

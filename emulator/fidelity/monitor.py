"""Watches a native run from a thread of its own: little work per sample, so as not to be the load
that it looks for."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping

from emulator.fidelity.delay_lines import DelayLines
from emulator.fidelity.sources import (
    busiest_share,
    read_cores,
    read_run_delays_ns,
    stolen_share,
    worst_lateness,
)
from emulator.fidelity.thresholds import SATURATED_BUSY, thresholds_of
from emulator.fidelity.verdict import Figures, Verdict, judge
from emulator.linux.real_time import use_real_time_priority
from emulator.network.network import Network
from emulator.ports.counters import PortCounters
from emulator.ports.port_watch import PortService
from emulator.switches.memory import port_number
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Link

_SAMPLE_S = 0.25
"""Long enough for 25 ticks of a 100 Hz kernel, so that 98% busy can be told from less."""
_TIMERS_PER_SAMPLE = 24


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
        self._delay_lines = DelayLines()
        self._ports_before: Mapping[str, PortService] = {}
        self._ports_after: Mapping[str, PortService] = {}
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
        self._ports_before = self._read_ports()
        self._thread = threading.Thread(target=self._watch, name="fidelity", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch; at the latest before the network goes down. Can be called again."""
        if self._thread is None:
            return
        self._stopping.set()
        self._thread.join()
        self._thread = None
        self._ports_after = self._read_ports()
        self._watched_ns = time.monotonic_ns() - self._watched_since

    def verdict(self, capture_drops: int | None = None) -> Verdict:
        """The verdict on what was seen. The network must still be up."""
        self.stop()
        known = any(self._ranks.values()) and self._watched_ns
        controller = self._network.pause_controller
        reaction = controller.reaction() if controller is not None else None
        counters = self._network.port_counters()
        return judge(
            Figures(
                saturated_share=self._saturated / self._samples if self._samples else None,
                steal_share=self._stolen,
                softnet_drops=self._network.softnet_drops(),
                lost_outside_queues=sum(port.lost_outside_queue for port in counters),
                queue_lateness=self._queue_lateness(counters),
                late_delay_lines=self._delay_lines.late_share,
                rank_delay_share=self._waited_ns / self._watched_ns if known else None,
                timer_lateness_ns=late_percentile(self._late_ns),
                capture_drops=capture_drops,
                pause_reaction_ns=reaction.worst_ns if reaction is not None else None,
            ),
            thresholds_of(
                _shortest_frame_ns(self._network.fabric.links),
                reaction.allowed_ns if reaction is not None else None,
            ),
        )

    def _read_ports(self) -> Mapping[str, PortService]:
        watch = self._network.watch
        return watch.read_all(self._network.fabric) if watch is not None else {}

    def _queue_lateness(self, counters: Iterable[PortCounters]) -> float | None:
        """The lateness at ports that can be judged: what a port's queue dropped seems to wait for
        good, and a port that a lossless neighbour may pause rightly stands still."""
        controller = self._network.pause_controller
        held = controller.held() if controller is not None else {}
        fabric = self._network.fabric
        paused = {
            port.interface
            for link in fabric.links
            for port in (link.a, link.b)
            if port_number(link, port) in held
        }
        dropped = {port.port for port in counters if port.queue.drops_by_reason.get("queue")}
        services = (
            after.since(self._ports_before[name])
            for name, after in self._ports_after.items()
            if name not in paused and name not in dropped
        )
        return worst_lateness(services, self._network.options.arrangement.lateness_ns)

    # -- in the thread -----------------------------------------------------------------------------

    def _watch(self) -> None:
        use_real_time_priority()  # what is late then is the timer, not this thread
        first = before = read_cores()
        nodes = itertools.cycle(node.name for node in self._network.fabric.nodes)
        while not self._stopping.is_set():
            self._sample_timers()
            self._sample_delay_lines(next(nodes))
            self._sample_ranks()
            after = read_cores()
            if self._stopping.is_set() and self._samples:
                break  # a sample cut short has too few ticks to judge by
            self._samples += 1
            self._saturated += busiest_share(before, after) >= SATURATED_BUSY
            self._stolen = stolen_share(first, after)
            before = after

    def _sample_timers(self) -> None:
        pause = _SAMPLE_S / _TIMERS_PER_SAMPLE
        for _ in range(_TIMERS_PER_SAMPLE):
            start = time.monotonic_ns()
            time.sleep(pause)
            self._late_ns.append(time.monotonic_ns() - start - round(pause * 1e9))
            if self._stopping.is_set():
                return

    def _sample_delay_lines(self, node: str) -> None:
        if self._network.options.arrangement.needs_delay_device:
            with self._network.netlink(node) as netlink:
                self._delay_lines.look(self._network, node, netlink)

    def _sample_ranks(self) -> None:
        for pid, before in self._ranks.items():
            for thread, waited in read_run_delays_ns(pid).items():
                self._waited_ns = max(self._waited_ns, waited - before.get(thread, 0))


def _shortest_frame_ns(links: Iterable[Link]) -> int:
    """The time of a full frame on the fastest link, as the fabric is built."""
    return min(
        (8 * 10**9 * (link.frame_bytes + L1_OVERHEAD_BYTES) // link.rate_bps for link in links),
        default=0,
    )


def late_percentile(values: list[int]) -> int | None:
    """The 99th percentile (nearest rank), but never the single worst value: one hiccup in a short
    run is no percentile. None when there are fewer than two."""
    if len(values) < 2:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 2, len(ordered) * 99 // 100)]

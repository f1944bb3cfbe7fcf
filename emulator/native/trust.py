"""Up to which rate, and with how many hosts, native links on this machine are right.

Measured, not estimated: hosts around a switch stream to each other at rising rates, over ports that
are made as a run's are, and a rate is right when every link carries what it should within
`LIMIT`. The finding is kept in the user's cache, for `scale: auto`.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from emulator.native.kernel import can_watch_ports, missing_for_fabric, native_arrangement
from emulator.native.streams import streaming
from emulator.network.network import Network, NetworkOptions
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Fabric
from topologies.routing.routes import compute_routes
from topologies.spec.fabric_section import FlatSpec
from topologies.units import format_rate

LIMIT = 0.03
"""The share by which a link may carry less, or more, than its rate. A valid run is within 5%."""

HOSTS = (2, 4, 16)
MTUS = (1500, 9000)
QUEUES: Mapping[str, Mapping[str, object] | None] = {
    "droptail": None,
    "dctcp": {"kind": "dctcp", "k": "100KB"},
    "shared": {"kind": "shared"},
}
_RATES_BPS = tuple(step * decade for decade in (10**7, 10**8, 10**9) for step in (2, 5, 10))
_WINDOW_S = 0.3
_PATIENCE_S = 4.0
_TRIES = 2
"""A hiccup of the machine is no limit of it: a rate is wrong when it is wrong twice."""


@dataclass(frozen=True, slots=True)
class TrustedRate:
    """The highest rate at which links were right, in one setting; 0 when none was. `error` is the
    largest deviation of a link from that rate; `packet_hops_per_s` are those of all links
    together."""

    queue: str
    arrangement: str
    mtu_bytes: int
    hosts: int
    rate_bps: int
    error: float
    packet_hops_per_s: float

    def __str__(self) -> str:
        if not self.rate_bps:
            return "none of the rates that were tried"
        return f"{format_rate(self.rate_bps)} (worst link {self.error:.1%} off)"


@dataclass(frozen=True)
class MachineTrust:
    """The measurement, on which machine and when (seconds since 1970)."""

    machine: str
    measured_at_s: int
    rates: tuple[TrustedRate, ...]

    def packet_hops_per_s(self, arrangement: str) -> float | None:
        """Packet-hops per second that are right whatever the setting, where ports are made so: the
        least over the settings, each at its highest rate. None where nothing is known."""
        found = [r.packet_hops_per_s for r in self.rates if r.arrangement == arrangement]
        return min(found) or None if found else None

    def as_dict(self) -> dict[str, object]:
        """Plain data."""
        return asdict(self)


def this_machine() -> str:
    """The machine that a measurement holds for: kernel, processor cores, host."""
    return f"{platform.node()}/{platform.release()}/{len(os.sched_getaffinity(0))} cores"


def stored_trust() -> MachineTrust | None:
    """The measurement of this machine, None when nothing was or it cannot be read."""
    try:
        data = json.loads(_store().read_text())
        rates = tuple(TrustedRate(**rate) for rate in data["rates"])
        found = MachineTrust(data["machine"], data["measured_at_s"], rates)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None
    return found if found.machine == this_machine() else None


def measure_trust(report: Callable[[str], None]) -> MachineTrust:
    """Measures, which takes about a minute, and keeps what it found. Needs root. Raises OSError,
    and RuntimeError for a user without a home."""
    rates = tuple(_measure(report))
    found = MachineTrust(this_machine(), int(time.time()), rates)
    store = _store()
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(json.dumps(found.as_dict(), indent=1) + "\n")
    return found


def _store() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return cache / "groundwire" / "native-trust.json"


def _measure(report: Callable[[str], None]) -> Iterator[TrustedRate]:
    for name, queue in QUEUES.items():
        lacks = missing_for_fabric(_star(2, _RATES_BPS[0], MTUS[0], queue))
        if lacks:
            report(f"{name}: not measured, {lacks[0]}")
            continue
        for mtu_bytes in MTUS:
            for hosts in HOSTS:
                found = _highest_rate(name, queue, mtu_bytes, hosts)
                report(f"{name}, MTU {mtu_bytes}, {hosts} hosts: right up to {found}")
                yield found


def _highest_rate(
    name: str, queue: Mapping[str, object] | None, mtu_bytes: int, hosts: int
) -> TrustedRate:
    """Rates are raised until one is wrong. Hosts that do not get to sending are wrong, too."""
    arrangement = native_arrangement(_star(hosts, _RATES_BPS[0], mtu_bytes, queue)).name
    best = TrustedRate(name, arrangement, mtu_bytes, hosts, 0, 0.0, 0.0)
    for rate_bps in _RATES_BPS:
        fabric = _star(hosts, rate_bps, mtu_bytes, queue)
        for _ in range(_TRIES):
            try:
                error, forwarded = link_error(fabric)
            except OSError:
                error, forwarded = 1.0, 0.0
            if error <= LIMIT:
                break
        if error > LIMIT:
            break
        best = TrustedRate(name, arrangement, mtu_bytes, hosts, rate_bps, error, forwarded)
    return best


def _star(hosts: int, rate_bps: int, mtu_bytes: int, queue: Mapping[str, object] | None) -> Fabric:
    section: dict[str, object] = {
        "kind": "flat",
        "hosts": hosts,
        "link": {"rate": f"{rate_bps}bps", "delay": 0, "mtu": mtu_bytes},
    }
    if queue is not None:
        section["queue"] = queue
    return build_fabric(FlatSpec.model_validate(section))


def link_error(fabric: Fabric) -> tuple[float, float]:
    """(the share by which the worst link to a host carried less or more than its rate, packets per
    second over all links), while every host streams to the next one. Needs root and ports that can
    be watched. Raises OSError, also when hosts do not get to sending."""
    hosts = [host.name for host in fabric.hosts]
    options = NetworkOptions(arrangement=native_arrangement(fabric), watched=can_watch_ports())
    with (
        Network(fabric, compute_routes(fabric), options) as network,
        streaming(network, hosts, _PATIENCE_S, as_ranks=True),
    ):
        watch = network.watch
        if watch is None:
            raise OSError("this kernel has no eBPF classifiers to count what ports send")
        ends = [(link, link.other(h)) for h in hosts for link in fabric.links_of[h]]
        before, start_ns = [watch.sent_bytes(*end) for end in ends], time.monotonic_ns()
        time.sleep(_WINDOW_S)
        after, took_ns = [watch.sent_bytes(*end) for end in ends], time.monotonic_ns() - start_ns
    sent = [late - early for late, early in zip(after, before, strict=True)]
    errors = [
        abs(size * 8e9 / (link.rate_bps * took_ns) - 1)
        for size, (link, _) in zip(sent, ends, strict=True)
    ]
    frame = fabric.links[0].frame_bytes + L1_OVERHEAD_BYTES
    # Each stream crosses two links, and half as many acknowledgements come back.
    return max(errors), sum(sent) / frame * 2 * 1.5 / (took_ns / 1e9)

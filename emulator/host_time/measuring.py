"""The cost of sending, receiving and waking up on this machine, as the `host` section of a spec.

Times are of processors, not of clocks: a thread that waits for a core counts nothing, so that a
busy machine gives about what an idle one does. Each figure is the median of `TRIES`, with the least
and the largest beside it.

- `syscall` is half of what a byte takes that is sent and received while nobody waits: the way
  through TCP is in it.
- `wakeup` is what such a byte takes more where a thread waits for it.
- `copy_rate` is what a stream takes at both ends, less its calls and waits.
- `per_packet` is the slope over the packets of bytes with other MTUs. One thread sends and receives
  them by turns: two would count how they disturb each other.

The packets cross a veth pair between namespaces of their own, as ports of the native
kernel do: one segment a packet, without offloads. All of it happens in children, with which the
namespaces and sockets go.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from emulator.linux import namespaces, rtnetlink
from emulator.linux.child import answer_of_child
from emulator.linux.ethtool import receive_hold_us
from emulator.linux.netlink import NetlinkSocket
from emulator.linux.signals import end_with_parent
from emulator.virtual.building.library import compiled_library
from topologies.spec.host_section import HostSpec
from topologies.units import format_bandwidth, format_time

TRIES = 5
_MTUS = (1500, 3000, 9000)
_PINGS, _EMPTY_CALLS = 10_000, 100_000
STREAM_BYTES, _PACKETS_BYTES, _GLOO_BYTES = 1 << 27, 1 << 25, 1 << 26
_MEMORY_BYTES, _CALL_BYTES = 1 << 26, 1 << 20
"""Memory that no cache holds, as payload is seldom in one."""
_TURN_BYTES = 1 << 13
"""So few packets that a new connection takes them at once, and one thread receives them next."""
_HEADERS_BYTES = 52
"""IPv4, TCP and its timestamps: what a packet's payload is smaller by than the MTU."""
_SOURCE = Path(__file__).with_name("measuring.c")
_GLOO = "Gloo, as copy rate"
_Tries = list[dict[str, float]]


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure: the median, the least and the largest of its tries. `unit`: ns, or B/s."""

    name: str
    value: float
    least: float
    largest: float
    unit: str
    how: str


@dataclass(frozen=True, slots=True)
class HostMeasurement:
    """The costs of a machine. `figures` are those of the section first, by its keys; `missing` are
    what could not be measured, name -> the reason."""

    machine: str
    figures: tuple[Measured, ...]
    missing: dict[str, str]

    def section(self) -> dict[str, Any]:
        """The `host` section of a spec, as plain data."""
        found = {each.name: each for each in self.figures}
        section: dict[str, Any] = {}
        for key in ("copy_rate", "syscall", "wakeup", "per_packet", "interrupt_moderation"):
            if key in found:
                value = round(found[key].value)
                rate = found[key].unit == "B/s"
                section[key] = format_bandwidth(_rounded(value)) if rate else format_time(value)
        section["cores"] = min(len(os.sched_getaffinity(0)), 64)
        HostSpec.model_validate(section)
        return section

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "host": self.section()}


def _rounded(bytes_per_s: int) -> int:
    """Three digits: more were not measured."""
    unit = int(10 ** max(len(str(bytes_per_s)) - 3, 0))
    return bytes_per_s // unit * unit


def measure_host(report: Callable[[str], None]) -> HostMeasurement:
    """Measures, which takes some ten seconds of processor time. Needs no root where users may have
    namespaces. Raises VirtualKernelError: there is no compiler; OSError: loopback does not work."""
    library = measuring_library()
    report("calls and wake-ups over loopback")
    tries = answer_of_child(lambda: list(_over_loopback(library)))
    missing: dict[str, str] = {}
    report("packets over a veth pair in namespaces of their own")
    by_packets = _asked(
        "per_packet", missing, lambda: answer_of_child(lambda: _streams_over_veth(library))
    )
    figures = list(costs(tries, by_packets))
    held = _asked("interrupt_moderation", missing, _interrupt_moderation_ns)
    if held:
        how = "as the interface of the default route is set: rx-usecs of `ethtool -c`"
        figures.append(_measured("interrupt_moderation", held, "ns", how))
    report("Gloo: a broadcast of two ranks")
    rates = _asked(_GLOO, missing, lambda: answer_of_child(_gloo_bytes_per_s))
    if rates:
        how = "a broadcast of 67 MB over loopback: bytes of both ends by their processor time"
        figures.append(_measured(_GLOO, rates, "B/s", how))
    return HostMeasurement(_machine(), tuple(figures), missing)


def _machine() -> str:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{cpu}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}"


def _interrupt_moderation_ns() -> list[float]:
    """Raises OSError: the interface does not say, or there is none."""
    routes = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
    interface = next((route[0] for route in routes if route[1] == "00000000"), None)
    if interface is None:
        raise OSError("there is no default route, so that no NIC is known")
    try:
        with socket.socket() as control:
            return [receive_hold_us(control, interface) * 1000.0]
    except OSError as problem:
        raise OSError(f"{interface} does not say (ethtool -c): {problem.strerror}") from None


@cache
def measuring_library() -> Path:
    """The library, compiled when it is absent. Raises VirtualKernelError: it cannot be compiled."""
    return compiled_library(_SOURCE, "-lpthread", folder="host", needed_by="measuring a host needs")


def _asked(name: str, missing: dict[str, str], ask: Callable[[], list[Any]]) -> list[Any]:
    try:
        return ask()
    except OSError as problem:
        missing[name] = str(problem)
        return []


def costs(tries: _Tries, by_packets: list[list[dict[str, float]]]) -> Iterator[Measured]:
    """The figures that tries come to. `tries` have the ns of an `empty` call, of a byte `alone` and
    of one waited for (`ping`, and `ping_wall` by the clock), and a stream of `STREAM_BYTES`: its
    `ns`, `calls` and `waits`. `by_packets` has such streams of other sizes of `packets`, a list a
    try; empty, there is no `per_packet`."""
    calls = [one["alone"] / 2 for one in tries]
    wakes = [max(one["ping"] - one["alone"], 0.0) for one in tries]
    syscall_ns, wakeup_ns = statistics.median(calls), statistics.median(wakes)

    def rest_ns(stream: dict[str, float]) -> float:
        rest = stream["ns"] - stream["calls"] * syscall_ns - stream["waits"] * wakeup_ns
        return max(rest, 1.0)

    copies = [2 * STREAM_BYTES * 1e9 / rest_ns(one) for one in tries]
    slopes = []
    for streams in by_packets:
        packets = [stream["packets"] for stream in streams]
        slope = statistics.linear_regression(packets, [rest_ns(one) for one in streams]).slope
        slopes.append(max(slope, 0.0))
    yield _measured("copy_rate", copies, "B/s", "a stream over loopback, less its calls and waits")
    yield _measured("syscall", calls, "ns", "half of a byte that is sent and received, by TCP")
    how = "a byte for which a thread waits, less one that is there"
    yield _measured("wakeup", wakes, "ns", how)
    if slopes:
        how = "one thread's bytes over veth at MTU 1500, 3000 and 9000: the slope over packets"
        yield _measured("per_packet", slopes, "ns", how)
    empty = [one["empty"] for one in tries]
    yield _measured("an empty call", empty, "ns", "recv() of a socket that has nothing")
    walls = [one["ping_wall"] for one in tries]
    how = "wall time of a byte for which a thread waits; it grows with the load"
    yield _measured("a wait, by the clock", walls, "ns", how)


def _measured(name: str, values: Sequence[float], unit: str, how: str) -> Measured:
    return Measured(name, statistics.median(values), min(values), max(values), unit, how)


class _Spent(ctypes.Structure):
    """`struct spent` of measuring.c."""

    _fields_ = [(name, ctypes.c_int64) for name in ("processor_ns", "wall_ns", "calls", "waits")]


class _Traffic:
    """The functions of measuring.c. Raises OSError as they fail."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def run(self, name: str, ends: Sequence[socket.socket], *numbers: int) -> Any:
        spent = _Spent()
        given = [ctypes.c_int64(number) for number in numbers]
        descriptors = [end.fileno() for end in ends]
        failed = getattr(self._library, name)(*descriptors, *given, ctypes.byref(spent))
        if failed:
            raise OSError(failed, f"{name}: {os.strerror(failed)}")
        return spent


def _over_loopback(library: Path) -> Iterator[dict[str, float]]:
    traffic = _Traffic(library)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ends = _connected(server, socket.socket())
    for _ in range(TRIES):
        empty = traffic.run("empty_calls", ends[1:], _EMPTY_CALLS)
        alone, ping = (traffic.run(kind, ends, _PINGS) for kind in ("alone", "ping"))
        sizes = (STREAM_BYTES, _MEMORY_BYTES, _CALL_BYTES)
        stream = traffic.run("stream", ends, *sizes)
        yield {
            "empty": empty.processor_ns / _EMPTY_CALLS,
            "alone": alone.processor_ns / (2 * _PINGS),
            "ping": ping.processor_ns / (2 * _PINGS),
            "ping_wall": ping.wall_ns / (2 * _PINGS),
            "ns": stream.processor_ns,
            "calls": stream.calls,
            "waits": stream.waits,
        }


def _connected(server: socket.socket, client: socket.socket) -> tuple[socket.socket, socket.socket]:
    client.settimeout(5)
    client.connect(server.getsockname())
    other, _ = server.accept()
    for end in (client, other):
        end.settimeout(None)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, other


def _streams_over_veth(library: Path) -> list[list[dict[str, float]]]:
    """A stream for each MTU, once per try."""
    traffic = _Traffic(library)
    pairs = [_over_veth(mtu_bytes) for mtu_bytes in _MTUS]
    found = []
    for _ in range(TRIES):
        streams = []
        for mtu_bytes, ends in zip(_MTUS, pairs, strict=True):
            before_ns = _softirqs_ns()
            spent = traffic.run("turns", ends, _PACKETS_BYTES, _MEMORY_BYTES, _TURN_BYTES)
            streams.append(
                {
                    "packets": _PACKETS_BYTES / (mtu_bytes - _HEADERS_BYTES),
                    "ns": spent.processor_ns + _softirqs_ns() - before_ns,
                    "calls": spent.calls,
                    "waits": spent.waits,
                }
            )
        found.append(streams)
    return found


def _softirqs_ns() -> int:
    """The processor time of the kernel's threads that handle packets when there are many."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().startswith("ksoftirqd/"):
                total += int((process / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return total


def _over_veth(mtu_bytes: int) -> tuple[socket.socket, socket.socket]:
    """A connection between two namespaces that live as long as it does."""
    servers, clients = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
    here, there = (_new_namespace() for _ in range(2))
    ends = (
        rtnetlink.VethEnd("server", 11, here, "02:47:57:00:00:01"),
        rtnetlink.VethEnd("client", 12, there, "02:47:57:00:00:02"),
    )
    with NetlinkSocket() as netlink:
        netlink.execute([rtnetlink.veth(*ends, mtu_bytes)])
    made = []
    for (own, other), address, peer in zip(
        (ends, ends[::-1]), (servers, clients), (clients, servers), strict=True
    ):
        namespaces.enter_descriptor(own.namespace_fd)
        hop = rtnetlink.Hop(own.ifindex, peer)
        with NetlinkSocket() as netlink:
            netlink.execute(
                [
                    rtnetlink.address(own.ifindex, address),
                    rtnetlink.set_state(own.ifindex, up=True),
                    rtnetlink.neighbour(own.ifindex, peer, other.mac),
                ]
            )
        made.append((own.namespace_fd, IPv4Network(peer), hop))
    for descriptor, network, hop in made:
        namespaces.enter_descriptor(descriptor)
        with NetlinkSocket() as netlink:
            netlink.execute([rtnetlink.route(network, [hop])])
    namespaces.enter_descriptor(here)
    server = socket.create_server((str(servers), 0))
    namespaces.enter_descriptor(there)
    with server:
        found = _connected(server, socket.socket())
    os.close(here)
    os.close(there)
    return found


def _new_namespace() -> int:
    namespaces.own_network()
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _gloo_bytes_per_s() -> list[float]:
    """Bytes that two ranks copy by a broadcast, by their processor time: once per try."""
    try:
        import torch  # noqa: F401
    except ImportError as problem:
        raise OSError(f"torch is not installed: {problem}") from None
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        other = os.fork()
        if other == 0:
            end_with_parent()
            os._exit(_ended(lambda: _gloo_rank(1, store, Path(directory) / "other")))
        own = _gloo_rank(0, store, None)
        _, status = os.waitpid(other, 0)
        if status:
            raise OSError("the other rank of Gloo failed")
        others = json.loads((Path(directory) / "other").read_text())
    return [2 * _GLOO_BYTES * 1e9 / (a + b) for a, b in zip(own, others, strict=True)]


def _ended(work: Callable[[], object]) -> int:
    try:
        work()
    except BaseException:
        return 1
    return 0


def _gloo_rank(rank: int, store: Path, told: Path | None) -> list[int]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    payload = torch.ones(_GLOO_BYTES // 4)
    dist.broadcast(payload, 0)
    spent_ns = []
    for _ in range(TRIES):
        dist.barrier()
        began_ns = time.process_time_ns()
        dist.broadcast(payload, 0)
        spent_ns.append(time.process_time_ns() - began_ns)
    if told is not None:
        told.write_text(json.dumps(spent_ns))
    dist.barrier()
    return spent_ns

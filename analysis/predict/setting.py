"""The setting of a spec's collectives, and of a run's, as predictors are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from analysis.predict.carrier import Carrier
from analysis.predict.interface import (
    Setting,
    Transport,
    connection_key,
    group_key,
    group_priorities_of,
)
from analysis.runs.collectives import ALIGNMENT
from analysis.runs.run import RankLog, Run
from topologies.spec.host_section import HostSpec
from topologies.spec.spec import Spec
from topologies.spec.transports.connections import named_connection

T = TypeVar("T")


def setting_of_spec(spec: Spec) -> Setting:
    """The setting of a spec's collectives. Ports are not known yet: collisions are drawn."""
    return Setting(
        spec.plan.fabric,
        spec.plan.routes,
        spec.plan.hosts,
        Transport.of(spec),
        spec.seed,
        priorities=(spec.priorities(False), spec.priorities(True)),
        group_priorities=group_priorities_of(spec),
        charged=_charged(spec),
        held_by=_held_by(spec),
    )


def setting_of(run: Run) -> Setting:
    """The setting of a run's collectives, as predictors are told."""
    transport = Transport.of(run.spec)
    sockets = [*_socket_ports(run)]
    carried = [] if transport.carrier is None else list(_carrier_ports(run, transport.carrier))
    handshakes = [*_handshakes(run)]
    return Setting(
        run.fabric,
        run.routes,
        run.hosts,
        transport,
        run.spec.seed,
        _first_ports(sockets),
        _first_ports(carried),
        (run.spec.priorities(False), run.spec.priorities(True)),
        group_ports=_group_ports(sockets),
        group_priorities=group_priorities_of(run.spec),
        group_carrier_ports=_group_ports(carried),
        charged=_charged(run.spec),
        held_by=_held_by(run.spec),
        joined_ns={
            log.rank: joined for log in run.ranks if (joined := _joined_ns(log)) is not None
        },
        handshakes_us=_first_ports(handshakes),
        group_handshakes_us=_group_ports(handshakes),
    )


def _joined_ns(log: RankLog) -> int | None:
    """When a rank had made its connections. Ranks of ours whose first collective is an alignment
    begin it then."""
    if log.joined_ns is not None:
        return log.joined_ns
    first = min(log.collectives, key=lambda record: record.start_ns, default=None)
    return first.start_ns if first is not None and first.phase == ALIGNMENT else None


def _first_ports(ends: Iterable[_End[T]]) -> dict[tuple[int, int], T]:
    """The ports of the first connection of each two of all ranks."""
    return {pair: ports for group, number, pair, ports in ends if _is_default(group) and not number}


def _charged(spec: Spec) -> HostSpec | None:
    """The costs that hosts are charged; None where there are none."""
    return spec.host if spec.host.charged else None


def _held_by(spec: Spec) -> str:
    """The key that has ports hold what they receive; empty where none does."""
    return ".".join(spec.held_by) if spec.held_ns else ""


_End = tuple[str, int, tuple[int, int], T]
"""The group, which of the connections of two ranks, the pair of ranks, lower first, and ports."""


def _socket_ports(run: Run) -> Iterator[_End[tuple[int, int]]]:
    """Each connection by TCP."""
    for log in run.ranks:
        for one in log.connections:
            ends = (log.rank, one.peer), (one.port, one.peer_port)
            yield *named_connection(one.group), *ends


def _handshakes(run: Run) -> Iterator[_End[tuple[int, int]]]:
    """Each rank's end of each connection by TCP: its round trips, in place of ports."""
    for log in run.ranks:
        for one in log.handshakes:
            ends = (
                (log.rank, one.peer),
                (one.handshake_us, -1 if one.greeting_us is None else one.greeting_us),
            )
            yield *named_connection(one.group), *ends


def _carrier_ports(run: Run, carrier: Carrier) -> Iterator[_End[int]]:
    """Each end of a carrier."""
    for log in run.ranks:
        numbers: Counter[tuple[str, int]] = Counter()
        for group, peer, port in carrier.ports(log):
            number = numbers[group, peer]
            numbers[group, peer] += 1
            yield group, number, (min(log.rank, peer), max(log.rank, peer)), port


def _group_ports(ends: Iterable[_End[T]]) -> dict[str, Mapping[tuple[int, int], T]]:
    """The ports of groups that are not all ranks, and of connections of two ranks beyond the first,
    by their names and by their ranks."""
    by_number: dict[int, dict[str, dict[tuple[int, int], T]]] = {}
    for group, number, pair, port in ends:
        if number or not _is_default(group):
            name = "" if _is_default(group) else group
            by_number.setdefault(number, {}).setdefault(name, {})[pair] = port
    return {
        connection_key(name, number) or "": ports
        for number, by_name in by_number.items()
        for name, ports in _by_ranks_too(by_name).items()
    }


def _by_ranks_too(
    by_name: Mapping[str, Mapping[tuple[int, int], T]],
) -> dict[str, Mapping[tuple[int, int], T]]:
    """Things known by a group's name, by its ranks as well: those of the first of several
    groups."""
    found: dict[str, Mapping[tuple[int, int], T]] = {}
    for name, ports in by_name.items():
        found.setdefault(group_key(sorted({rank for pair in ports for rank in pair})), ports)
        found[name] = ports
    return found


def _is_default(group: str) -> bool:
    """The groups of several jobs begin with the job's name."""
    return group.rpartition("/")[2] == "default"

"""The setting of a spec's collectives, and of a run's, as predictors are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from analysis.predict.carrier import Carrier
from analysis.predict.interface import Setting, Transport, group_key, group_priorities_of
from analysis.runs.run import Run
from topologies.spec.spec import Spec

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
    carried = [] if transport.carrier is None else list(_carrier_ports(run, transport.carrier))
    return Setting(
        run.fabric,
        run.routes,
        run.hosts,
        transport,
        run.spec.seed,
        {
            (log.rank, connection.peer): (connection.port, connection.peer_port)
            for log in run.ranks
            for connection in log.connections
            if _is_default(connection.group)
        },
        {pair: port for group, pair, port in carried if _is_default(group)},
        (run.spec.priorities(False), run.spec.priorities(True)),
        group_ports=_group_ports(run),
        group_priorities=group_priorities_of(run.spec),
        group_carrier_ports=_group_carrier_ports(carried),
        charged=_charged(run.spec),
        held_by=_held_by(run.spec),
        joined_ns={log.rank: log.joined_ns for log in run.ranks if log.joined_ns is not None},
    )


def _charged(spec: Spec) -> str:
    """The costs that hosts are charged, in words; empty where there are none."""
    return spec.host.described() if spec.host.charged else ""


def _held_by(spec: Spec) -> str:
    """The key that has ports hold what they receive; empty where none does."""
    return ".".join(spec.held_by) if spec.held_ns else ""


def _group_ports(run: Run) -> dict[str, Mapping[tuple[int, int], tuple[int, int]]]:
    """The ports of groups that are not all ranks, by their names and by their ranks."""
    by_name: dict[str, dict[tuple[int, int], tuple[int, int]]] = {}
    for log in run.ranks:
        for one in log.connections:
            if not _is_default(one.group):
                by_name.setdefault(one.group, {})[log.rank, one.peer] = one.port, one.peer_port
    return _by_ranks_too(by_name)


def _carrier_ports(run: Run, carrier: Carrier) -> Iterator[tuple[str, tuple[int, int], int]]:
    """Each end of a carrier: the group, the pair of ranks, lower first, and the port."""
    for log in run.ranks:
        for group, peer, port in carrier.ports(log):
            yield group, (min(log.rank, peer), max(log.rank, peer)), port


def _group_carrier_ports(
    carried: Iterable[tuple[str, tuple[int, int], int]],
) -> dict[str, Mapping[tuple[int, int], int]]:
    """As `_group_ports`, of the ends of a carrier."""
    by_name: dict[str, dict[tuple[int, int], int]] = {}
    for group, pair, port in carried:
        if not _is_default(group):
            by_name.setdefault(group, {})[pair] = port
    return _by_ranks_too(by_name)


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

"""The setting of a spec's collectives, and of a run's, as predictors are told."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.decode.roce.wire_format import udp_source_port
from analysis.predict.interface import Setting, Transport, group_key, group_priorities_of
from analysis.runs.run import Run
from topologies.spec.spec import Spec


def setting_of_spec(spec: Spec) -> Setting:
    """Where the spec's collectives will run. Ports are not known yet: collisions are drawn."""
    return Setting(
        spec.plan.fabric,
        spec.plan.routes,
        spec.plan.hosts,
        Transport.of(spec),
        spec.seed,
        priorities=(spec.priorities(False), spec.priorities(True)),
        group_priorities=group_priorities_of(spec),
    )


def setting_of(run: Run) -> Setting:
    """Where a run's collectives ran, as predictors are told."""
    return Setting(
        run.fabric,
        run.routes,
        run.hosts,
        Transport.of(run.spec),
        run.spec.seed,
        {
            (log.rank, connection.peer): (connection.port, connection.peer_port)
            for log in run.ranks
            for connection in log.connections
            if _is_default(connection.group)
        },
        {
            (min(log.rank, pair.peer), max(log.rank, pair.peer)): udp_source_port(
                pair.local_qpn, pair.remote_qpn
            )
            for log in run.ranks
            for pair in log.queue_pairs
            if _is_default(pair.group)
        },
        (run.spec.priorities(False), run.spec.priorities(True)),
        group_ports=_group_ports(run),
        group_priorities=group_priorities_of(run.spec),
        group_roce_ports=_group_roce_ports(run),
    )


def _group_ports(run: Run) -> dict[str, Mapping[tuple[int, int], tuple[int, int]]]:
    """The ports of groups that are not all ranks, by their names and by their ranks."""
    by_name: dict[str, dict[tuple[int, int], tuple[int, int]]] = {}
    for log in run.ranks:
        for one in log.connections:
            if not _is_default(one.group):
                by_name.setdefault(one.group, {})[log.rank, one.peer] = one.port, one.peer_port
    found: dict[str, Mapping[tuple[int, int], tuple[int, int]]] = {}
    for name, ports in by_name.items():
        found.setdefault(group_key(sorted({rank for pair in ports for rank in pair})), ports)
        found[name] = ports
    return found


def _group_roce_ports(run: Run) -> dict[str, Mapping[tuple[int, int], int]]:
    """The UDP ports of queue pairs of groups that are not all ranks, as `_group_ports` has those
    of connections."""
    by_name: dict[str, dict[tuple[int, int], int]] = {}
    for log in run.ranks:
        for one in log.queue_pairs:
            if not _is_default(one.group):
                pair = min(log.rank, one.peer), max(log.rank, one.peer)
                port = udp_source_port(one.local_qpn, one.remote_qpn)
                by_name.setdefault(one.group, {})[pair] = port
    found: dict[str, Mapping[tuple[int, int], int]] = {}
    for name, ports in by_name.items():
        found.setdefault(group_key(sorted({rank for pair in ports for rank in pair})), ports)
        found[name] = ports
    return found


def _is_default(group: str) -> bool:
    """The groups of several jobs begin with the job's name."""
    return group.rpartition("/")[2] == "default"

"""Where a run's collectives ran, as predictors are told."""

from __future__ import annotations

from analysis.decode.roce.wire_format import udp_source_port
from analysis.predict.interface import Setting, Transport
from analysis.runs.run import Run


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
    )


def _is_default(group: str) -> bool:
    """Of several jobs, groups begin with the job's name."""
    return group.rpartition("/")[2] == "default"

"""Where a run's collectives ran, as predictors are told."""

from __future__ import annotations

from analysis.predict.interface import Setting, Transport
from analysis.runs.run import Run


def setting_of(run: Run) -> Setting:
    """Where a run's collectives ran, as predictors are told."""
    transport = run.spec.tcp
    return Setting(
        run.fabric,
        run.routes,
        run.hosts,
        Transport(transport.congestion_control, transport.rcvbuf_bytes, transport.sndbuf_bytes),
        run.spec.seed,
        {
            (log.rank, connection.peer): (connection.port, connection.peer_port)
            for log in run.ranks
            for connection in log.connections
            # Of several jobs, groups begin with the job's name.
            if connection.group.rpartition("/")[2] == "default"
        },
    )

"""The ports that packets between two ranks pass, by the hash that the run's routers take."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.predict.engines.paths import Paths
from analysis.predict.setting import setting_of
from analysis.runs.run import Run

MOST_CONNECTIONS = 4_096
"""More are not followed: a fabric with so many is coloured, not read line by line."""


@dataclass(frozen=True)
class RankPath:
    """The egress ports of the path from one rank to another, in order."""

    source: int
    destination: int
    ports: tuple[str, ...]


def rank_paths(run: Run) -> tuple[tuple[RankPath, ...], str]:
    """The path of each connection, or queue pair, of the group of all ranks, one in each direction;
    and the reason where there are none, as a sentence."""
    if not run.fabric.choice.by_headers:
        kind = run.fabric.choice.kind
        return (), f"Paths are not shown: switches choose by more than a hash (routing {kind})."
    flows = run.spec.transport.flows_per_socket
    if flows > 1:
        return (), f"Paths are not shown: a connection has {flows} subflows."
    setting = setting_of(run)
    carrier = setting.transport.carrier
    if carrier is not None and carrier.values > 1:
        return (), f"Paths are not shown: a queue pair has {carrier.values} entropy values."
    known = setting.carrier_ports or setting.ports
    pairs = [pair for pair in known if setting.hosts[pair[0]] != setting.hosts[pair[1]]]
    if len(pairs) > MOST_CONNECTIONS:
        return (), f"Paths are not shown: the run has {len(pairs):,} connections."
    if not pairs:
        return (), "Paths are not known: no rank told of a connection of all ranks."
    both = sorted({*pairs, *((b, a) for a, b in pairs)})
    sources, destinations = zip(*both, strict=True)
    ports = [end.interface for link in run.fabric.links for end in (link.a, link.b)]
    paths = Paths(setting)
    rows = paths.hashed(sources, destinations, carried=bool(setting.carrier_ports))
    return tuple(
        RankPath(*pair, tuple(ports[link] for link in row if link < paths.links))
        for pair, row in zip(both, rows.tolist(), strict=True)
    ), ""

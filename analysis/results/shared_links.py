"""The links that several jobs of a run used, and who waited there for whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.message_costs import wire_of
from analysis.predict.engines.paths import paths_of
from analysis.predict.engines.wire import Floats
from analysis.predict.models.flow import Flow
from analysis.predict.run_predictions import as_posted, call_of
from analysis.predict.scenario import GroupedCall
from analysis.predict.setting import setting_of
from analysis.runs.collectives import MeasuredCollective, collectives_of
from analysis.runs.run import Run
from collectives.call import CollectiveError


@dataclass(frozen=True, slots=True)
class Wait:
    """How long messages of a job waited at a port behind those of another, added up over the
    messages, of each the part that waited longest; nanoseconds of target time."""

    job: str
    behind: str
    waited_ns: int


@dataclass(frozen=True, slots=True)
class SharedLink:
    """One direction of a link that collectives of several jobs took: their data with headers, in
    bytes by job. `waits` is empty where that is not known."""

    link: int
    node: str
    peer: str
    rate_bps: int
    bytes_by_job: dict[str, int]
    waits: tuple[Wait, ...]


def shared_links(run: Run) -> tuple[SharedLink, ...]:
    """The links that jobs shared, those where most was waited first.

    Paths are those that the run's connections took. Waits are `flow`'s: every rank posts its
    collectives when it did in the run, and their messages go through the ports in order. They are
    left out beyond the number of messages that it follows. Raises RunError.
    """
    known: list[tuple[MeasuredCollective, GroupedCall]] = []
    for collective in collectives_of(run):
        try:
            known.append((collective, GroupedCall(call_of(collective), collective.group)))
        except CollectiveError:
            continue  # its ranks send each other unequal parts, of which nobody knows the sizes
    known = [each for each in known if _on_own_hosts(each[0], run.hosts)]
    several = run.spec.transport.flows_per_socket > 1
    if not known or several or not run.fabric.choice.by_headers:
        return ()
    bytes_by_link = _loads(run, known)
    waits = _waits(run, known)
    found = []
    for number, by_job in bytes_by_link.items():
        if len(by_job) < 2:
            continue
        link = run.fabric.links[number // 2]
        ends = (link.a.node, link.b.node) if number % 2 == 0 else (link.b.node, link.a.node)
        found.append(
            SharedLink(link.index, *ends, link.rate_bps, by_job, tuple(waits.get(number, ())))
        )
    return tuple(
        sorted(
            found,
            key=lambda each: (
                -sum(wait.waited_ns for wait in each.waits),
                -sum(each.bytes_by_job.values()),
                each.link,
                each.node,
            ),
        )
    )


def _on_own_hosts(collective: MeasuredCollective, hosts: Sequence[str]) -> bool:
    """Whether no two of its ranks share a host, which no link carries."""
    mine = [hosts[rank] for rank in collective.ranks]
    return len(set(mine)) == len(mine)


def _job_of(collective: MeasuredCollective) -> str:
    return collective.group.partition("/")[0]


def _loads(
    run: Run, known: Sequence[tuple[MeasuredCollective, GroupedCall]]
) -> dict[int, dict[str, int]]:
    """Directed link -> job -> bytes."""
    paths = paths_of(setting_of(run))
    joint = JointPrograms([call for _, call in known], {}, run.spec.seed, paths.setting.transport)
    ends, owners = joint.ends, np.array(joint.owners, dtype=np.int64)
    groups = joint.groups(paths.setting)
    ends_of = np.array(joint.compiled.source, dtype=np.int64)
    source = ends[ends_of]
    destination = ends[np.array(joint.compiled.destination, dtype=np.int64)]
    jobs = np.array([_job_of(collective) for collective, _ in known])[owners]
    transport = paths.setting.transport
    carried = np.array([transport.carries(grouped.call) for _, grouped in known])[owners]
    loads: dict[str, Floats] = defaultdict(lambda: np.zeros(paths.links + 1))
    for number in dict.fromkeys(owners.tolist()):
        mine = owners == number
        job, roce = str(jobs[mine][0]), bool(carried[mine][0])
        own = [groups[end] for end in ends_of[mine].tolist()]
        rows = paths.hashed(source[mine], destination[mine], roce, own)
        call = known[number][1].call
        wire = wire_of(transport, call, paths.mtu_bytes, paths.outer_bytes)
        sizes = np.asarray(wire.data_bytes(joint.size_bytes[mine]), dtype=np.float64)
        np.add.at(loads[job], rows, sizes[:, None])
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for job, load in loads.items():
        for link in np.flatnonzero(load[: paths.links]).tolist():
            found[link][job] = round(float(load[link]))
    return found


def _waits(
    run: Run, known: Sequence[tuple[MeasuredCollective, GroupedCall]]
) -> dict[int, list[Wait]]:
    """Directed link -> waits there."""
    names = [job.name for job in run.jobs]
    collectives = [collective for collective, _ in known]
    scenario = as_posted(setting_of(run), collectives, run.environment.scale)
    try:
        waits = Flow().queue_waits(scenario, [names.index(_job_of(one)) for one in collectives])
    except CollectiveError:
        return {}
    found: dict[int, list[Wait]] = defaultdict(list)
    for (link, job, behind), took in sorted(waits.items()):
        if round(took):
            found[link].append(Wait(names[job], names[behind], round(took)))
    return found

"""The time that hosts' processors take, as columns for the packet engine."""

from __future__ import annotations

import numpy as np

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.interface import PredictorError, Setting
from analysis.predict.scenario import Scenario
from collectives.schedule.observed import ObservedSchedule
from simulation.columns import Column


def costs_of_hosts(scenario: Scenario, joint: JointPrograms, source: Column) -> dict[str, Column]:
    """The columns of hosts that take time (`Setting.charged`); none where they take none. `source`
    has the end that each pair's messages come from. Raises PredictorError for threads that are not
    followed: those of transports other than Gloo's, and of ranks that share a host."""
    setting = scenario.setting
    host = setting.charged
    if host is None:
        return {}
    _expect_gloo(setting, joint)
    scenario.expect_hosts_apart()
    number = {name: i for i, name in enumerate(dict.fromkeys(setting.hosts))}
    of_rank = np.array([number[name] for name in setting.hosts], dtype=np.int32)
    of_end = of_rank[joint.ends]
    mains = of_rank[list(scenario.acts)]  # their programs come first
    others = of_end[joint.compiled.ends[len(mains) :]]
    costs = (host.syscall_ns, host.wakeup_ns, host.per_packet_ns, host.copy_bytes_per_s or 0)
    return {
        "host.costs": np.array([*costs, host.cores or 0], dtype=np.int64),
        "host.of_program": np.concatenate([mains, others]).astype(np.int32),
        "host.of_pair": of_end[source].astype(np.int32),
    }


def _expect_gloo(setting: Setting, joint: JointPrograms) -> None:
    if setting.transport.carrier is not None or any(
        isinstance(grouped.call.schedule, ObservedSchedule) for grouped in joint.calls
    ):
        raise PredictorError(
            "host: packet follows the threads of Gloo, of no other transport and no other library"
        )

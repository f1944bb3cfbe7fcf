"""Linux's TCP, segment by segment, by the compiled packet engine: windows, slow start, congestion
control, losses.

Messages and programs are those of `flow`; each pair of ranks of a group has a connection, whose
state carries over from one collective to the next.
"""

from __future__ import annotations

import numpy as np

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.packet.ports import FabricPorts
from analysis.predict.engines.packet.programs import EncodedPrograms
from analysis.predict.engines.paths import Paths, paths_of
from analysis.predict.engines.wire import TCP_IP_BYTES
from analysis.predict.interface import PredictorError, Setting
from analysis.predict.scenario import Scenario, Timeline, at_most
from analysis.predict.simulator import Simulator
from collectives.schedule.gloo import PREAMBLE_BYTES
from collectives.schedule.observed import ObservedSchedule
from simulation.columns import Column
from simulation.engine_process import run_engine
from simulation.failure import SimulationError
from simulation.timeline import EngineTimeline

_MOST_MESSAGES = 1_000_000
"""Beyond this many messages, which Python takes ten seconds for, nothing is followed packet by
packet."""

_CONTROLS = ("reno", "cubic", "dctcp", "bbr")
"""`Control` of simulation/engine/congestion.hpp, by their names in Linux."""

_GREETING_BYTES = 8
"""The bytes that the end that connects sends first (gloo/transport/tcp/device.cc: the sequence
number that the listener knows it by)."""


class Packet(Simulator):
    """Built-in predictor "packet".

    Connections begin as Linux opens them. A collective that is asked about alone is the first that
    its connections carry.
    """

    name = "packet"
    remembers = True
    knows_links = True
    ignores = (
        "what a message costs a rank's processor; reordering, and reductions undone for it; "
        "traffic of several classes; send buffers below the receive buffers"
    )

    def __init__(self) -> None:
        self.last: EngineTimeline | None = None
        """The timeline of what was followed last, for those who look closer."""

    def run(self, scenario: Scenario) -> Timeline:
        """Follow every segment. Raises PredictorError."""
        scenario.expect_hosts_apart()
        setting, only = scenario.setting, scenario.only
        if only is not None and scenario.silent:
            return Timeline.of_one(only, 0.0)
        if not at_most(_MOST_MESSAGES, scenario.calls, setting.seed):
            raise PredictorError(f"found more messages than packet follows, {_MOST_MESSAGES:,}")
        joint = JointPrograms(scenario.calls, scenario.acts, setting.seed)
        if joint.over_roce(setting.transport):
            raise PredictorError("packet does not predict RoCE")
        if setting.group_priorities:
            raise PredictorError("packet does not follow collectives.classes")
        encoded = EncodedPrograms(joint)
        columns = encoded.columns() | scenario_of(setting, joint)
        try:
            self.last = run_engine(columns)
        except SimulationError as error:
            raise PredictorError(str(error)) from error
        encoded.take_back(self.last.stamps)
        return joint.timeline()


def scenario_of(setting: Setting, joint: JointPrograms) -> dict[str, Column]:
    """Columns of ports, connections and messages. Raises PredictorError for what is not
    followed."""
    paths = paths_of(setting)
    fabric = FabricPorts(paths)
    pairs, links, first_link, columns = _pairs(paths, fabric, joint)
    compiled = joint.compiled
    ends = len(joint.ends)
    keys = pairs[:, 0] * ends + pairs[:, 1]
    source = np.array(compiled.source, dtype=np.int64)
    destination = np.array(compiled.destination, dtype=np.int64)
    number = np.searchsorted(keys, source * ends + destination)
    return {
        **fabric.columns(set(links.tolist())),
        **_tcp(paths),
        **columns,
        "pair.links": links.astype(np.int32),
        "pair.first_link": first_link,
        "message.pair": number.astype(np.int32),
        "message.sender": np.array(compiled.sender, dtype=np.int32),
        "message.receiver": np.array(compiled.receiver, dtype=np.int32),
        "message.bytes": joint.size_bytes,
        **_headers(joint),
    }


def _headers(joint: JointPrograms) -> dict[str, Column]:
    """The bytes before each message, and whether it is announced, by its own collective."""
    schedules = [grouped.call.schedule for grouped in joint.calls]
    own = [one.header_bytes if isinstance(one, ObservedSchedule) else -1 for one in schedules]
    header = np.array(own, dtype=np.int32)[np.array(joint.owners, dtype=np.int64)]
    announced = header < 0
    return {
        "message.header": np.where(announced, np.int32(PREAMBLE_BYTES), header),
        "message.announced": announced.astype(np.int32),
    }


def _tcp(paths: Paths) -> dict[str, Column]:
    """The settings of the hosts' TCP. Raises PredictorError for a congestion control that is not
    followed, and for a send buffer that may hold a connection back before its window does."""
    transport = paths.setting.transport
    if transport.sndbuf_bytes < transport.rcvbuf_bytes:
        raise PredictorError(
            f"packet does not follow send buffers: found sndbuf {transport.sndbuf_bytes:,} bytes, "
            f"allowed rcvbuf's {transport.rcvbuf_bytes:,} and more"
        )
    control = transport.congestion_control
    if control not in _CONTROLS:
        allowed = ", ".join(sorted(_CONTROLS))
        raise PredictorError(
            f"packet does not follow the congestion control {control}; allowed: {allowed}"
        )
    numbers = {
        "tcp.control": _CONTROLS.index(control),
        "tcp.ecn": int(transport.ecn or control == "dctcp"),
        "tcp.initial_window": transport.initial_window,
        "tcp.min_rto_us": transport.min_rto_ns // 1000,
        "tcp.receive_buffer": transport.rcvbuf_bytes,
        "tcp.mss": paths.mtu_bytes - TCP_IP_BYTES,
        "preamble_bytes": PREAMBLE_BYTES,
        "greeting_bytes": _GREETING_BYTES,
    }
    return {name: np.array([number], dtype=np.int64) for name, number in numbers.items()}


def _pairs(
    paths: Paths, fabric: FabricPorts, joint: JointPrograms
) -> tuple[Column, Column, Column, dict[str, Column]]:
    """The pairs of ends that exchange messages, both ways, in order; their links and where those of
    each begin; and columns of them: their ends, the pair of the way back, and what a bare packet
    takes there and back."""
    source, destination = joint.pairs
    ends = joint.ends
    count = max(len(ends), 1)
    keys = np.unique(np.concatenate([source * count + destination, destination * count + source]))
    pairs = np.stack([keys // count, keys % count], axis=1)
    reverse = np.searchsorted(keys, pairs[:, 1] * count + pairs[:, 0])
    if len(pairs):
        groups = joint.groups(paths.setting)
        matrix = paths.hashed(
            ends[pairs[:, 0]],
            ends[pairs[:, 1]],
            groups=[groups[first] for first in pairs[:, 0].tolist()],
        )
    else:
        matrix = np.zeros((0, 0), dtype=np.int64)
    present = matrix < paths.links
    first_link = np.concatenate([[0], np.cumsum(present.sum(axis=1))]).astype(np.int64)
    links = matrix[present]
    one_way = fabric.one_way_ns(matrix)
    columns: dict[str, Column] = {
        "pair.source": pairs[:, 0].astype(np.int32),
        "pair.destination": pairs[:, 1].astype(np.int32),
        "pair.reverse": reverse.astype(np.int32),
        "pair.base_ns": one_way + one_way[reverse],
    }
    return pairs, links, first_link, columns

"""Linux's TCP and Soft-RoCE, packet by packet, by the compiled packet engine: windows, congestion
control, losses, pauses.

Messages and programs are those of `flow`; each pair of ranks of a group has a connection or two
queue pairs, whose state carries over from one collective to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from analysis.predict.engines.copied import copied_messages
from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.packet.choices import NextHopChoices
from analysis.predict.engines.packet.faults import LinkFaults
from analysis.predict.engines.packet.hosts import costs_of_hosts
from analysis.predict.engines.packet.pairs import AS_COPIES, PairsOfEnds
from analysis.predict.engines.packet.ports import FabricPorts
from analysis.predict.engines.packet.programs import EncodedPrograms
from analysis.predict.engines.packet.reroutes import ChangingRoutes
from analysis.predict.engines.paths import Paths, paths_of
from analysis.predict.engines.wire import Ints
from analysis.predict.flow_times import FlowTime, flow_times
from analysis.predict.interface import PredictorError, Setting
from analysis.predict.scenario import Scenario, Timeline, at_most
from analysis.predict.simulator import Simulator
from collectives.schedule.gloo import GREETING_BYTES, PREAMBLE_BYTES
from collectives.schedule.observed import ObservedSchedule
from simulation.columns import Column
from simulation.engine_process import EngineProgress, run_engine
from simulation.failure import SimulationError
from simulation.timeline import EngineTimeline

_MOST_MESSAGES = 20_000_000
"""Beyond this many messages, which take about 3 GB, nothing is followed packet by packet."""

_CONTROLS = ("reno", "cubic", "dctcp", "bbr")
"""`Control` of simulation/engine/congestion.hpp, by their names in Linux."""

_WITHOUT_CARRIER: dict[str, Column] = {
    "roce.path_mtu": np.zeros(1, dtype=np.int64),
    "roce.timeout_ns": np.zeros(1, dtype=np.int64),
    "roce.retries": np.zeros(1, dtype=np.int64),
    "roce.devices": np.zeros(0, dtype=np.int64),
}
"""The settings of queue pairs where there are none."""


class Packet(Simulator):
    """Built-in predictor "packet".

    Connections begin as Linux opens them. A collective that is asked about alone is the first that
    its connections carry.
    """

    name = "packet"
    remembers = True
    knows_links = True
    charges_hosts = True
    follows_copies = True
    ignores = "what a message costs a rank's processor"
    speed: Mapping[str, Column] = MappingProxyType({})
    """The columns that tell the engine how closely to follow."""

    def __init__(self, *, keeps_flows: bool = False) -> None:
        """`keeps_flows`: `flows` has the messages of what was followed last."""
        self.last: EngineTimeline | None = None
        """The timeline of what was followed last, for those who look closer."""
        self.flows: list[FlowTime] = []
        self._keeps_flows = keeps_flows

    def run(self, scenario: Scenario) -> Timeline:
        """Follow every packet. Raises PredictorError."""
        setting, only = scenario.setting, scenario.only
        if only is not None and scenario.silent:
            return Timeline.of_one(only, 0.0)
        if not at_most(_MOST_MESSAGES, scenario.calls, setting.seed):
            raise PredictorError(f"found more messages than packet follows, {_MOST_MESSAGES:,}")
        joint = JointPrograms(
            scenario.calls,
            scenario.acts,
            setting.seed,
            setting.transport,
            follows_steps=True,
            is_whole=setting.is_copied,
        )
        faults = LinkFaults(setting.routes)
        faults.add(joint, scenario.faults)
        encoded = EncodedPrograms(joint)
        columns = encoded.columns() | scenario_of(setting, joint, faults)
        columns |= costs_of_hosts(scenario, joint, columns["pair.source"])
        columns["begin_ns"] = np.array([scenario.begin_ns], dtype=np.int64)
        columns["keeps_messages"] = np.array([int(self._keeps_flows)], dtype=np.int64)
        columns |= {**self.speed, **self._known(joint)}
        try:
            self.last = run_engine(columns, self._report)
        except SimulationError as error:
            raise PredictorError(str(error)) from error
        if self._keeps_flows:
            self.flows = list(flow_times(setting, joint, *self.last.messages_ns))
        encoded.take_back(self.last.stamps)
        return self._with_errors(joint, joint.timeline())

    def _known(self, joint: JointPrograms) -> Mapping[str, Column]:
        """Columns that tell what goes the same way; none where everything is followed."""
        return {}

    def _with_errors(self, joint: JointPrograms, timeline: Timeline) -> Timeline:
        """How far off each call may be; nothing where everything is followed."""
        return timeline

    def _report(self, engine: EngineProgress) -> None:
        if self.progress is not None:
            self.progress(engine.now_ns, engine.received / engine.messages)


def scenario_of(
    setting: Setting, joint: JointPrograms, faults: LinkFaults | None = None
) -> dict[str, Column]:
    """Columns of ports, connections and messages. Raises PredictorError for what is not
    followed."""
    compiled = joint.compiled
    carried = joint.messages_carried(setting.transport).astype(np.int64)
    carried[copied_messages(setting, joint)] = AS_COPIES
    messages = np.stack(
        [
            carried,
            np.frombuffer(compiled.source, dtype=np.int32),
            np.frombuffer(compiled.destination, dtype=np.int32),
        ]
    )
    columns, pairs = network_of(setting, joint, messages, faults or LinkFaults(setting.routes))
    return columns | {
        "message.pair": pairs.numbers_of(messages).astype(np.int32),
        "message.sender": np.frombuffer(compiled.sender, dtype=np.int32),
        "message.receiver": np.frombuffer(compiled.receiver, dtype=np.int32),
        "message.bytes": joint.size_bytes,
        **_headers(joint),
    }


def driven_scenario(
    setting: Setting, pairs: Iterable[tuple[int, int]], meshes: int = 1
) -> dict[str, Column]:
    """Columns of ports and of connections of pairs of ranks, without messages. The end of a rank's
    connections of a mesh is `mesh * ranks + rank`. Raises PredictorError for what is not
    followed."""
    setting.expect_free_hosts("a driven network")
    setting.expect_packets("a driven network")
    joint = JointPrograms([], {}, setting.seed)
    ranks = len(setting.hosts)
    for mesh in range(meshes):
        joint.add_ends(range(ranks), mesh)
    carried = setting.transport.carrier is not None
    rows = np.array([(int(carried), *pair) for pair in pairs], dtype=np.int64).reshape(-1, 3)
    first_ends = [np.array([0, mesh * ranks, mesh * ranks]) for mesh in range(meshes)]
    rows = np.concatenate([rows + ends for ends in first_ends])
    columns, _ = network_of(setting, joint, rows.T, LinkFaults(setting.routes))
    none = np.zeros(0, dtype=np.int32)
    names = ("pair", "sender", "receiver", "header", "announced")
    return {
        **EncodedPrograms(joint).columns(),
        **columns,
        **{f"message.{name}": none for name in names},
        **{f"message.{name}": none.astype(np.int64) for name in ("bytes", "asked")},
    }


def network_of(
    setting: Setting, joint: JointPrograms, messages: Ints, faults: LinkFaults
) -> tuple[dict[str, Column], PairsOfEnds]:
    """Columns of ports and connections, and the pairs that messages go between (`PairsOfEnds.of`
    has their rows)."""
    if setting.held_by:
        raise PredictorError(f"packet does not follow {setting.held_by}")
    if setting.transport.flows > 1:
        raise PredictorError(
            "packet does not follow MPTCP, whose connections have several subflows; allowed: "
            "transport.kind: tcp"
        )
    paths = paths_of(setting)
    carrier = setting.transport.carrier
    fabric = FabricPorts(paths, faults.are_any)
    pairs = PairsOfEnds.of(paths, joint, messages)
    choices = NextHopChoices(paths)
    reroutes = ChangingRoutes(paths, pairs, choices, faults.routes)
    of_pairs = pairs.columns(fabric, choices)
    words = of_pairs["pair.links"]
    taken = choices.links | {*words[words < paths.links].tolist()}
    taken |= {*of_pairs["value.links"].tolist()}
    taken |= reroutes.links
    return {
        **fabric.columns(taken),
        **faults.columns(),
        **_tcp(paths),
        **of_pairs,
        **reroutes.columns(),
        **_WITHOUT_CARRIER,
        **({} if carrier is None else carrier.columns(setting, pairs.line_rates_bps)),
        "keeps_messages": np.zeros(1, dtype=np.int64),
        "begin_ns": np.zeros(1, dtype=np.int64),
    }, pairs


def _headers(joint: JointPrograms) -> dict[str, Column]:
    """The bytes before each message, whether it is announced, and the send buffer that its sender
    asks for, by its own collective."""
    schedules = [grouped.call.schedule for grouped in joint.calls]
    own = [one.header_bytes if isinstance(one, ObservedSchedule) else -1 for one in schedules]
    asks = [isinstance(one, ObservedSchedule) and one.asks_send_buffers for one in schedules]
    owners = np.frombuffer(joint.owners, dtype=np.int32)
    announced = np.array(own, dtype=np.int32)[owners] < 0
    header = np.where(announced, np.int32(PREAMBLE_BYTES), np.array(own, dtype=np.int32)[owners])
    return {
        "message.header": header,
        "message.announced": announced.astype(np.int32),
        "message.asked": np.where(np.array(asks)[owners], joint.size_bytes + header, 0),
    }


def _tcp(paths: Paths) -> dict[str, Column]:
    """The settings of the hosts' TCP. Raises PredictorError for a congestion control that is not
    followed."""
    transport = paths.setting.transport
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
        "tcp.send_buffer": transport.sndbuf_bytes,
        "outer_bytes": paths.outer_bytes,
        "preamble_bytes": PREAMBLE_BYTES,
        "greeting_bytes": GREETING_BYTES,
    }
    return {name: np.array([number], dtype=np.int64) for name, number in numbers.items()}

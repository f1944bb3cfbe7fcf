"""Linux's TCP, segment by segment: windows, slow start, congestion control, losses.

Messages and programs are those of `flow`; each pair of ranks of a group has a connection, whose
state carries over from one collective to the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.predict.engines.acts import PostCall
from analysis.predict.engines.joint_programs import GroupedCall, JointPrograms, at_most
from analysis.predict.engines.paths import Paths, paths_of
from analysis.predict.engines.tcp.control.controls import CONTROLS
from analysis.predict.engines.tcp.fabric import FabricPorts
from analysis.predict.engines.tcp.network import Network
from analysis.predict.engines.tcp.packet import Sends
from analysis.predict.engines.tcp.programs import TcpPrograms, TcpSetting
from analysis.predict.engines.wire import TCP_IP_BYTES
from analysis.predict.interface import PredictorError, Setting
from collectives.call import CollectiveCall

_MOST_MESSAGES = 100_000
"""Beyond this many messages, which take minutes, nothing is followed packet by packet."""


class LinuxTcp:
    """Built-in predictor "tcp".

    Connections begin as Linux opens them. A collective that is asked about alone is the first that
    its connections carry.
    """

    name = "tcp"
    ignores = (
        "what a message costs a rank's processor; reordering, and reductions undone for it; "
        "traffic of several classes; send buffers below the receive buffers"
    )

    def __init__(self) -> None:
        self.last: TcpPrograms | None = None
        """What was followed last, with its connections and ports, for those who look closer."""

    def predict(self, setting: Setting, call: CollectiveCall) -> float:
        """Nanoseconds from the common start to the last member's completion. Raises
        PredictorError."""
        if call.schedule.sends_nothing(call.shape):
            return 0.0
        acts = {rank: (PostCall(0),) for rank in call.ranks}
        joint = JointPrograms([GroupedCall(call, "")], acts, setting.seed)
        self.run_together(setting, joint)
        return joint.durations_ns()[0]

    def follows(self, setting: Setting, calls: Sequence[GroupedCall]) -> bool:
        """Whatever is not too much."""
        return at_most(_MOST_MESSAGES, calls, setting.seed)

    def run_together(self, setting: Setting, joint: JointPrograms) -> str | None:
        """Run collectives that are in flight together. Raises PredictorError."""
        self.follow_run(setting, joint)
        return None

    def follow_run(self, setting: Setting, joint: JointPrograms) -> None:
        """Run everything. Raises PredictorError."""
        messages = len(joint.owners)
        if messages > _MOST_MESSAGES:
            raise PredictorError(f"found {messages:,} messages, allowed {_MOST_MESSAGES:,}")
        if joint.over_roce(setting.transport):
            raise PredictorError("tcp does not predict RoCE")
        if setting.group_priorities:
            raise PredictorError("tcp does not follow collectives.classes")
        paths = paths_of(setting)
        network = Network()
        fabric = FabricPorts(paths, network)
        routes, base_ns = _routes(paths, fabric, joint)
        programs = TcpPrograms(
            joint.compiled,
            joint.size_bytes.tolist(),
            routes,
            base_ns,
            tcp_setting(paths),
            network,
        )
        self.last = programs
        programs.run()


def tcp_setting(paths: Paths) -> TcpSetting:
    """What the hosts' TCP is set to. Raises PredictorError for a congestion control that is not
    followed, and for a send buffer that may hold a connection back before its window does."""
    transport = paths.setting.transport
    if transport.sndbuf_bytes < transport.rcvbuf_bytes:
        raise PredictorError(
            f"tcp does not follow send buffers: found sndbuf {transport.sndbuf_bytes:,} bytes, "
            f"allowed rcvbuf's {transport.rcvbuf_bytes:,} and more"
        )
    control = transport.congestion_control
    if control not in CONTROLS:
        allowed = ", ".join(sorted(CONTROLS))
        raise PredictorError(
            f"tcp does not follow the congestion control {control}; allowed: {allowed}"
        )
    return TcpSetting(
        control,
        transport.ecn or control == "dctcp",
        transport.initial_window,
        transport.min_rto_ns // 1000,
        transport.rcvbuf_bytes,
        paths.mtu_bytes - TCP_IP_BYTES,
    )


def _routes(
    paths: Paths, fabric: FabricPorts, joint: JointPrograms
) -> tuple[dict[tuple[int, int], tuple[Sends, ...]], dict[tuple[int, int], int]]:
    """Of each pair of ends that exchange messages, both ways: the links, and what a bare packet
    takes there and back."""
    source, destination = joint.pairs
    ends = joint.ends
    pairs = sorted(
        {*zip(source.tolist(), destination.tolist(), strict=True)}
        | {*zip(destination.tolist(), source.tolist(), strict=True)}
    )
    if not pairs:
        return {}, {}
    groups = joint.groups(paths.setting)
    array = np.array(pairs, dtype=np.int64)
    matrix = paths.hashed(
        ends[array[:, 0]], ends[array[:, 1]], groups=[groups[pair[0]] for pair in pairs]
    )
    links = {
        pair: [number for number in row if number < paths.links]
        for pair, row in zip(pairs, matrix.tolist(), strict=True)
    }
    one_way = {pair: fabric.one_way_ns(row) for pair, row in links.items()}
    return (
        {pair: tuple(fabric.along(row)) for pair, row in links.items()},
        {(a, b): one_way[a, b] + one_way[b, a] for a, b in pairs},
    )

"""The parts of a collective's time: from the payload at line rate to what was measured.

The parts up to collisions are differences between predictions that leave one effect out each; the
rest is split by what the ranks logged and the capture shows. Parts add up to the measured time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from analysis.compare.wire_delay import WireDelays
from analysis.predict.engines.message_costs import Effects
from analysis.predict.interface import Setting
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.flow import Flow, FlowIdealEcmp
from analysis.predict.run_predictions import Answer, RunPredictor, call_of
from analysis.predict.setting import setting_of
from analysis.runs.collectives import MeasuredCollective, collectives_of
from analysis.runs.run import Run
from collectives.call import CollectiveCall
from collectives.kinds import Kind


@dataclass(frozen=True)
class Decomposition:
    """Nanoseconds of one collective; all parts but `payload_ns` are what they add to it.

    - `payload_ns`: the payload alone over idle links, store and forward, no protocol;
    - `header_ns`: TCP, IP and Ethernet headers and acknowledgements;
    - `rendezvous_ns`: waiting for RECV_READY, and for payload that it queues behind;
    - `sharing_ns`: links inside the fabric that several flows must share even if spread evenly;
    - `collision_ns`: uneven ECMP hashing;
    - `overlap_ns`: other collectives in flight, and waiting for one of the group's threads;
    - `straggler_ns`: from the median rank's completion to the last one's, beyond what the
      prediction explains;
    - `incast_ns`: queueing in the fabric of the packets that came last, from the capture;
    - `congestion_control_ns`: what is left (windows, slow start, unfairness, losses). Negative
      when the run was faster than that.

    `incast_ns` is None without a capture; what it would be is then in `congestion_control_ns`.
    """

    collective: MeasuredCollective
    measured_ns: int
    payload_ns: float
    header_ns: float
    rendezvous_ns: float
    sharing_ns: float
    collision_ns: float
    overlap_ns: float
    straggler_ns: float
    incast_ns: float | None
    congestion_control_ns: float


PARTS = (
    ("payload", "payload_ns"),
    ("headers", "header_ns"),
    ("rendezvous", "rendezvous_ns"),
    ("sharing", "sharing_ns"),
    ("collisions", "collision_ns"),
    ("overlap", "overlap_ns"),
    ("stragglers", "straggler_ns"),
    (Kind.INCAST, "incast_ns"),
    ("other", "congestion_control_ns"),
)
"""Their names for people, and as fields of a decomposition."""


class _CumulativePredictions:
    """Predictions that count one effect more each, asked once for each distinct call."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._steps = (
            AlphaBeta.counting(Effects(headers=False, rendezvous=False)),
            AlphaBeta.counting(Effects(headers=True, rendezvous=False)),
            AlphaBeta(),
            FlowIdealEcmp(),
            Flow(),
        )
        self._asked: dict[CollectiveCall, tuple[float, ...]] = {}

    def of(self, call: CollectiveCall) -> tuple[float, ...]:
        """Nanoseconds with payload, headers, rendezvous, sharing and collisions counted."""
        if call not in self._asked:
            self._asked[call] = tuple(step.predict(self._setting, call) for step in self._steps)
        return self._asked[call]


def decompose(
    run: Run, collectives: Sequence[MeasuredCollective] | None = None
) -> list[Decomposition]:
    """Decompose every collective of a run that has a Gloo schedule (or those given)."""
    setting, scale = setting_of(run), run.environment.scale
    ladder = _CumulativePredictions(setting)
    delays = WireDelays.of(run) if run.captures else None
    every = collectives_of(run)
    answers = RunPredictor(setting, Flow()).together(every, scale)
    overlap = {
        c.id: float(answer.duration_ns - answer.alone_ns)
        for c, answer in zip(every, answers, strict=True)
        if isinstance(answer, Answer)
    }
    return [
        _decompose(c, scale, ladder.of(call_of(c)), overlap[c.id], delays)
        for c in (every if collectives is None else collectives)
        if c.id in overlap and not c.schedule.observed
    ]


def _decompose(
    collective: MeasuredCollective,
    scale: int,
    steps: tuple[float, ...],
    overlap_ns: float,
    delays: WireDelays | None,
) -> Decomposition:
    payload, headers, rendezvous, sharing, collisions = steps
    measured_ns = collective.duration_ns // scale
    rest = measured_ns - collisions - overlap_ns
    straggler = min(_straggler_ns(collective) / scale, max(rest, 0.0))
    rest -= straggler
    incast = None
    queued = None if delays is None else delays.last_queueing_ns(collective)
    if queued is not None:
        incast = min(queued / scale, max(rest, 0.0))
        rest -= incast
    return Decomposition(
        collective,
        measured_ns,
        payload_ns=payload,
        header_ns=headers - payload,
        rendezvous_ns=rendezvous - headers,
        sharing_ns=sharing - rendezvous,
        collision_ns=collisions - sharing,
        overlap_ns=overlap_ns,
        straggler_ns=straggler,
        incast_ns=incast,
        congestion_control_ns=rest,
    )


def _straggler_ns(collective: MeasuredCollective) -> float:
    if not collective.traits.ends_together:
        return 0.0
    ends = [record.end_ns for record in collective.by_rank.values()]
    return collective.end_ns - median(ends)

"""Predictions of all collectives of a run, those in flight together included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.collectives import Collective
from analysis.predictors.alpha_beta import AlphaBeta
from analysis.predictors.interface import CollectiveCall, Predictor, PredictorError, Setting
from analysis.predictors.message_costs import Effects
from analysis.predictors.overlap import InFlight, overlapped_durations_ns


def call_of(collective: Collective) -> CollectiveCall:
    """What a predictor is asked about a collective. Raises PredictorError."""
    return CollectiveCall(
        collective.kind,
        collective.size_bytes,
        collective.ranks,
        collective.element_bytes,
        collective.root,
        collective.degree,
        collective.peer,
        collective.shift,
        name=collective.id,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """Nanoseconds with what else is in flight, and on an idle fabric."""

    duration_ns: int
    alone_ns: int


class RunPredictor:
    """A predictor asked about a run's collectives: once for each distinct call, then overlapped."""

    def __init__(self, setting: Setting, predictor: Predictor | PredictorError) -> None:
        self._setting = setting
        self._predictor = predictor
        self._asked: dict[CollectiveCall, int | PredictorError] = {}
        self._on_wire: dict[CollectiveCall, float] = {}
        self._bulk = AlphaBeta.counting(Effects(headers=True, rendezvous=False))

    def alone(self, collective: Collective) -> int | PredictorError:
        """Nanoseconds on an idle fabric, or why there is no answer."""
        if isinstance(self._predictor, PredictorError):
            return self._predictor
        try:
            call = call_of(collective)
            if call not in self._asked:
                self._asked[call] = self._ask(self._predictor, call)
        except PredictorError as error:
            return error
        return self._asked[call]

    def _ask(self, predictor: Predictor, call: CollectiveCall) -> int | PredictorError:
        try:
            return round(predictor.predict(self._setting, call))
        except PredictorError as error:
            return error

    def together(
        self, collectives: Sequence[Collective], scale: int = 1
    ) -> list[Answer | PredictorError]:
        """Of each, with the others in flight, at the times when they were posted."""
        answers = [self.alone(collective) for collective in collectives]
        posted = [
            InFlight(
                collective.group,
                collective.start_ns // scale,
                frozenset(collective.ranks),
                float(answer),
                self._utilisation(collective, answer),
            )
            for collective, answer in zip(collectives, answers, strict=True)
            if not isinstance(answer, PredictorError)
        ]
        durations = iter(overlapped_durations_ns(posted))
        return [
            answer if isinstance(answer, PredictorError) else Answer(round(next(durations)), answer)
            for answer in answers
        ]

    def _utilisation(self, collective: Collective, alone_ns: int) -> float:
        call = call_of(collective)
        if call not in self._on_wire:
            self._on_wire[call] = self._bulk.predict(self._setting, call)
        return min(1.0, self._on_wire[call] / alone_ns) if alone_ns else 0.0

"""Simulators: `run(scenario)` is how each of them is asked, whatever the question."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from analysis.predict.interface import Setting
from analysis.predict.scenario import Scenario, Timeline
from collectives.call import CollectiveCall

if TYPE_CHECKING:
    from analysis.predict.engines.wire import Floats, Ints


Progress = Callable[[int, float], None]


class Simulator(ABC):
    """A predictor that follows what all ranks do. One that knows a collective alone is no simulator
    by itself; `added_up` makes one of it.

    `remembers` says that connections carry over from one collective to the next, so that a run is
    asked about as a whole. `knows_links` says that the simulator knows which links messages take,
    and so what jobs do to each other. `charges_hosts` says that it follows the time of processors
    (`Setting.charged`), `follows_copies` that it follows messages that are copies of memory
    (`Setting.copies`). `progress` is called meanwhile by those that take long: with
    the time in the scenario, in nanoseconds, and the share of its messages that have come.
    """

    name: str
    ignores: str
    remembers = False
    knows_links = False
    charges_hosts = False
    follows_copies = False
    progress: Progress | None = None

    @abstractmethod
    def run(self, scenario: Scenario) -> Timeline:
        """Follow a scenario to its end. Raises PredictorError for one that this simulator does not
        follow: each of its collectives may still have an answer alone."""

    def predict(self, setting: Setting, call: CollectiveCall) -> float:
        """Nanoseconds of a collective on an idle fabric. Raises PredictorError."""
        return self.run(Scenario.of_one(setting, call)).durations_ns()[0]

    def busy_ns(self, setting: Setting, call: CollectiveCall) -> tuple[Ints, Floats] | None:
        """The links that a collective's messages take, each once, and for how long they keep each
        busy; None from those that know of hosts' ports alone. Raises PredictorError."""
        return None

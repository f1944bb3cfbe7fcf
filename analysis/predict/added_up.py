"""Predictors that know one collective alone, as simulators; and how every predictor is asked.

Each collective takes what the predictor says of it alone, and those in flight together share the
links by the part of that time in which they load them (`engines.transfers`).
"""

from __future__ import annotations

import numpy as np

from analysis.predict.engines.message_costs import Effects
from analysis.predict.engines.transfers import Transfer, Transfers
from analysis.predict.interface import Predictor, PredictorError, Setting
from analysis.predict.link_load import LinkLoad
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.scenario import Scenario, Timeline
from analysis.predict.simulator import Simulator
from collectives.call import CollectiveCall, CollectiveError


class AddedUp(Simulator):
    """A simulator of any predictor, which is asked once for each distinct call. Its times are
    rounded to nanoseconds, as runs measure them."""

    def __init__(self, predictor: Predictor) -> None:
        self.name, self.ignores = predictor.name, predictor.ignores
        self._predictor = predictor
        self.charges_hosts = isinstance(predictor, Simulator) and predictor.charges_hosts
        self.follows_copies = isinstance(predictor, Simulator) and predictor.follows_copies
        self._bulk = AlphaBeta.counting(Effects(headers=True, rendezvous=False))
        self._known: dict[tuple[Setting, CollectiveCall], float | CollectiveError] = {}
        self._loads: dict[tuple[Setting, CollectiveCall], LinkLoad] = {}

    def run(self, scenario: Scenario) -> Timeline:
        """Follow any scenario whose collectives the predictor knows. Raises CollectiveError."""
        setting = scenario.setting
        only = scenario.only
        if only is not None:
            return Timeline.of_one(only, self.alone(setting, only))
        transfers = []
        for each in scenario.calls:
            duration_ns = round(self.alone(setting, each.call))
            load = self._load(setting, each.call, duration_ns)
            transfers.append(Transfer(duration_ns, load))
        return Transfers(scenario, transfers).run()

    def alone(self, setting: Setting, call: CollectiveCall) -> float:
        """Nanoseconds on an idle fabric. Raises CollectiveError."""
        if not self.charges_hosts:
            setting.expect_free_hosts(self.name)
        if not self.follows_copies:
            setting.expect_packets(self.name)
        key = setting, call
        if key not in self._known:
            try:
                self._known[key] = self._asked(setting, call)
            except CollectiveError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, CollectiveError):
            raise found
        return found

    def _asked(self, setting: Setting, call: CollectiveCall) -> float:
        scenario, predictor = Scenario.of_one(setting, call), self._predictor
        if isinstance(predictor, Simulator):
            return predictor.run(scenario).durations_ns()[0]
        scenario.expect_hosts_apart()
        scenario.expect_announced()
        return predictor.predict(setting, call)

    def _load(self, setting: Setting, call: CollectiveCall, alone_ns: int) -> LinkLoad:
        key = setting, call
        if key not in self._loads:
            self._loads[key] = self._found_load(setting, call, alone_ns)
        return self._loads[key]

    def _found_load(self, setting: Setting, call: CollectiveCall, alone_ns: int) -> LinkLoad:
        """The load of a collective that takes so long alone: of every link of the fabric where the
        predictor knows what goes where, else of the hosts' ports alone."""
        if not alone_ns:
            return LinkLoad.of_ports(call.ranks, 0.0)
        busy = None
        if isinstance(self._predictor, Simulator):
            busy = self._predictor.busy_ns(setting, call)
        if busy is not None:
            links, busy_ns = busy
            return LinkLoad(links, np.minimum(1.0, busy_ns / alone_ns))
        wire_ns = self._bulk.predict(setting, call)
        return LinkLoad.of_ports(call.ranks, min(1.0, wire_ns / alone_ns))


class Adapted(Simulator):
    """A predictor as everybody asks it: it follows what it can, and the rest is added up."""

    def __init__(self, predictor: Predictor) -> None:
        self.name, self.ignores = predictor.name, predictor.ignores
        self.added_up = AddedUp(predictor)
        self._follows = predictor if isinstance(predictor, Simulator) else None
        if self._follows is not None:
            self.remembers = self._follows.remembers
            self.knows_links = self._follows.knows_links
            self.charges_hosts = self._follows.charges_hosts
            self.follows_copies = self._follows.follows_copies

    def run(self, scenario: Scenario) -> Timeline:
        """Follow a scenario, or add it up. Raises CollectiveError."""
        if scenario.setting.charged is not None:
            return self.follow(scenario)  # what is added up has its processors to itself
        if self._follows is None or scenario.silent or scenario.only is not None:
            return self.added_up.run(scenario)
        try:
            return self._follows.run(scenario)
        except CollectiveError:
            return self.added_up.run(scenario)

    def follow(self, scenario: Scenario) -> Timeline:
        """Follow a scenario. Raises CollectiveError for one that is not followed."""
        if not self.charges_hosts:
            scenario.setting.expect_free_hosts(self.name)
        if not self.follows_copies:
            scenario.setting.expect_packets(self.name)
        if self._follows is None:
            raise PredictorError(f"{self.name} knows one collective alone")
        return self._follows.run(scenario)

"""What transfers keep busy, and how much those that run together slow each other down.

A transfer has each of its links busy for a part of the time that it takes alone. Where the parts of
all that run add up to more than one, they progress that much slower (processor sharing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from analysis.predict.engines.message_costs import Effects
from analysis.predict.engines.wire import Floats, Ints
from analysis.predict.interface import Setting
from analysis.predict.models.alpha_beta import AlphaBeta
from collectives.call import CollectiveCall


@dataclass(frozen=True, eq=False, slots=True)
class LinkLoad:
    """`links` are numbers, each once; `shares` has for each the part of a transfer's time alone in
    which it is busy, from 0 to 1."""

    links: Ints
    shares: Floats

    @classmethod
    def of_ports(cls, ranks: Sequence[int], share: float) -> LinkLoad:
        """Of the ranks' own ports, all alike. A port has its rank's number."""
        links = np.array(sorted(ranks), dtype=np.int64)
        return cls(links, np.full(len(links), share))


@runtime_checkable
class LoadsLinks(Protocol):
    """A predictor that knows the links of messages."""

    def busy_ns(self, setting: Setting, call: CollectiveCall) -> tuple[Ints, Floats]:
        """The links that a collective's messages take, each once, and for how long they keep each
        busy. Raises PredictorError."""
        ...


class LoadOfCalls:
    """The loads of collectives as a predictor has them: of every link of the fabric where it knows
    what goes where, else of the hosts' ports alone."""

    def __init__(self, setting: Setting, predictor: object) -> None:
        self._setting = setting
        self._predictor = predictor
        self._bulk = AlphaBeta.counting(Effects(headers=True, rendezvous=False))

    def of(self, call: CollectiveCall, alone_ns: float) -> LinkLoad:
        """Of a collective that takes so long alone. Raises PredictorError."""
        if not alone_ns:
            return LinkLoad.of_ports(call.ranks, 0.0)
        if isinstance(self._predictor, LoadsLinks):
            links, busy_ns = self._predictor.busy_ns(self._setting, call)
            return LinkLoad(links, np.minimum(1.0, busy_ns / alone_ns))
        wire_ns = self._bulk.predict(self._setting, call)
        return LinkLoad.of_ports(call.ranks, min(1.0, wire_ns / alone_ns))


def slowdowns(running: Sequence[LinkLoad]) -> list[float]:
    """By how much each is slowed down by the others that take the same links."""
    if not running:
        return []
    most = max((int(load.links.max(initial=-1)) for load in running), default=-1)
    total = np.zeros(most + 1)
    for load in running:
        total[load.links] += load.shares
    return [float(total[load.links].max(initial=1.0)) for load in running]

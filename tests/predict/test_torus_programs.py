"""Sequences of a rank that wait for one message, beside what the virtual kernel measured."""

from __future__ import annotations

import pytest

from analysis.predict.models.flow import Flow
from collectives.algorithms import algorithm
from collectives.call import CollectiveCall
from collectives.chunking import Chunking, cut
from collectives.kinds import Kind, Shape
from tests.predict.settings import make_setting

DIMS = (2, 3, 2)
RANKS = 12
SIZE_BYTES = 2_400_000


@pytest.mark.parametrize(
    ("kind", "measured_ns"),
    [(Kind.ALL_REDUCE, 536_368), (Kind.REDUCE_SCATTER, 588_249), (Kind.ALL_GATHER, 522_815)],
)
def test_who_waited_first_goes_on_first(kind: Kind, measured_ns: int) -> None:
    """Figures of benchmarks/results/2026-11-24-casestudy.md: 25 Gb/s and 1 us a link. With the
    message's own sequence first, the second was predicted 11.6% too long."""
    setting = make_setting(
        rate="25Gbps", delay="1us", fabric=f"{{kind: torus, dims: {list(DIMS)}, %s}}"
    )
    found = cut(Shape(kind, SIZE_BYTES, RANKS, 4), algorithm("torus", dimensions=DIMS), Chunking())
    call = CollectiveCall(kind, SIZE_BYTES, tuple(range(RANKS)), schedule=found)
    assert Flow().predict(setting, call) == pytest.approx(measured_ns, rel=0.03)

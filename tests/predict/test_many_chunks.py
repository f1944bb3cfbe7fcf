"""Collectives of more chunks than alpha-beta follows: what their beginnings say of the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.predict.interface import PredictorError, load_predictor
from collectives.algorithms import algorithm
from collectives.call import CollectiveCall
from collectives.chunking import Chunking, cut
from collectives.kinds import Kind, Shape
from tests.predict.settings import make_call, make_setting

MOST = "analysis.predict.engines.idle_programs.MOST_MESSAGES"


def _call(name: str, chunks: int, in_flight: int) -> CollectiveCall:
    setting = make_setting("flat")
    call = make_call(setting, "all_reduce", 16384 * chunks)
    shape = Shape(Kind.ALL_REDUCE, call.size_bytes, call.world, 4)
    return replace(
        call, schedule=cut(shape, algorithm(name), Chunking(chunks, in_flight=in_flight))
    )


@pytest.mark.parametrize("name", ["ring", "double-binary-tree", "direct"])
def test_the_beginnings_of_many_chunks_tell_the_whole(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, call = make_setting("flat"), _call(name, chunks=64, in_flight=4)
    model = load_predictor("alpha-beta")
    whole = model.predict(setting, call)
    assert call.schedule is not None
    each = len(call.schedule.chunks[0].program.messages())
    monkeypatch.setattr(MOST, 24 * each)
    assert model.predict(setting, call) == pytest.approx(whole, rel=0.03)


def test_chunks_without_a_bound_are_refused_where_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MOST, 1000)
    with pytest.raises(PredictorError, match="allowed 1,000, or chunks that run alike"):
        load_predictor("alpha-beta").predict(make_setting("flat"), _call("ring", 64, 0))

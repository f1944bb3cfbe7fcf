"""Training data from storage through preprocessors to trainers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.sources.from_spec import graphs_of_spec
from analysis.chakra.summary import problems
from groundwire.pipeline import run
from topologies.spec.errors import SpecError
from topologies.spec.ingest_section import IngestWorkload
from topologies.spec.spec import load_spec, parse_dict
from workloads.models.ingest import bound_ns, ingest_steps, items_of
from workloads.models.step import Pause, StartCollective, StartMessage, WaitFor

READY = Path(__file__).parents[2] / "topologies" / "ingest.yaml"


@st.composite
def pipelines(draw: st.DrawFn) -> IngestWorkload:
    few = st.integers(1, 4)
    return IngestWorkload.model_validate(
        {
            "kind": "ingest",
            "trainers": draw(few),
            "preprocessors": draw(few),
            "storage": draw(few),
            "batches": draw(st.integers(1, 6)),
            "prefetch": draw(few),
            "gradients": draw(st.sampled_from([0, 48])),
        }
    )


@given(pipelines())
def test_every_batch_goes_from_storage_through_a_preprocessor(workload: IngestWorkload) -> None:
    posted: dict[str, list[int]] = {}
    for rank in range(workload.ranks):
        waited, started = [], []
        for action in ingest_steps(workload, rank):
            match action:
                case StartMessage():
                    assert rank in (action.source, action.destination)
                    posted.setdefault(action.name, []).append(rank)
                    started.append(action.name)
                case StartCollective():
                    started.append(action.name)
                case WaitFor():
                    waited.append(action.name)
        assert sorted(started) == sorted(waited)
    assert all(len(ends) == 2 for ends in posted.values())
    assert len(posted) == 2 * workload.trainers * workload.batches
    assert {item.trainer for item in items_of(workload)} == set(range(workload.trainers))


@given(pipelines())
def test_no_rank_waits_for_ever(workload: IngestWorkload) -> None:
    """Ranks that hold back what nobody asked for yet still come to their ends."""
    fabric = {"kind": "flat", "hosts": workload.ranks}
    section = workload.model_dump(mode="json", by_alias=True)
    graphs = graphs_of_spec(parse_dict({"name": "s", "fabric": fabric, "workload": section}))
    assert problems(graphs) == []


@given(pipelines())
def test_a_trainer_asks_so_many_batches_ahead(workload: IngestWorkload) -> None:
    asked = waited = steps = 0
    for action in ingest_steps(workload, 0):
        match action:
            case StartMessage():
                asked += 1
            case WaitFor(name) if name.startswith("batch."):
                waited += 1
            case Pause():
                steps += 1
        assert asked - waited <= workload.prefetch
    assert asked == waited == steps == workload.batches


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"ranks": 5}, "expected ranks: 7, trainers"),
        ({"gradients": 6}, "expected gradients to be a multiple of 16 bytes"),
        ({"raw": 5}, "expected raw to be a multiple of 4 bytes"),
        ({"batches": 10_000}, "expected at most 20000 messages, found 80000"),
    ],
)
def test_keys_that_do_not_fit_are_refused(keys: dict[str, object], told: str) -> None:
    raw = {"name": "s", "fabric": {"kind": "flat", "hosts": 9}}
    with pytest.raises(SpecError, match=told):
        parse_dict(raw | {"workload": {"kind": "ingest", **keys}})


def test_slow_preprocessors_stall_trainers_and_gradients_keep_to_their_network(
    tmp_path: Path,
) -> None:
    """A preprocessor makes a batch each millisecond, for trainers 0 to 3 in turn, who compute for
    2 ms and reduce for 0.5 ms and more, all together. So trainer 3 finds its next batch about
    1.5 ms late, trainer 2 0.5 ms, and the others in time."""
    changed = {"workload.preprocessors": 1, "workload.ranks": 6, "workload.batches": 3}
    spec = load_spec(READY).with_overrides(
        {name: str(value) for name, value in changed.items()}, source="test"
    )
    done = run(spec, kernel="virtual", out=tmp_path / "run", pages=False)
    assert done.result["valid"], done.result["invalid_reasons"]
    row = done.result["ingest"]
    assert row["least_ns"] == bound_ns(spec.workload)  # type: ignore[arg-type]
    assert row["least_ns"]["preprocessors"] == 12_000_000
    whole_ns = done.result["iterations"][0]["duration_ns"]
    assert 12_000_000 < whole_ns < 1.5 * 12_000_000
    assert row["stall_ns"] == pytest.approx((1_500_000 + 500_000) / 4, rel=0.15)
    assert row["supporting_power"] == pytest.approx(900 / 3700)
    sent = {(link.node, link.peer): link.bytes for link in done.port_counters}
    gradients = 3 * 2 * 3 * 4_000_000 // 4  # batches, ring, of which each rank sends 3/4 twice
    assert gradients < sent["t0", "back"] < 1.1 * gradients
    assert sent["t0", "front"] < 0.1 * gradients
    for row in done.result["collectives"]:
        assert abs(row["predicted"]["packet"]["error"]) < 0.3, row["id"]
    assert abs(done.result["iterations"][0]["predicted"]["packet"]["error"]) < 0.02

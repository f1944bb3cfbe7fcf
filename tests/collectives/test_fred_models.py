"""The models of FRED's wafer, as `benchmarks.fred_models` has them."""

from __future__ import annotations

import pytest

from benchmarks.fred_models import MODELS, VARIANTS, Model, placement, spec
from topologies.spec.spec import parse_spec


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_every_model_has_a_spec_for_every_fabric(model: Model, variant: str) -> None:
    found = parse_spec(spec(model, variant))
    assert found.workload.ranks == model.ranks == model.model * model.data * model.stages


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_computing_gives_what_is_published_of_c_at_the_bandwidths_of_the_paper(
    model: Model,
) -> None:
    on_mesh = model.compute_us + model.mesh_us
    on_c = model.compute_us + model.mesh_us / model.gain_of_c
    assert on_mesh / on_c == pytest.approx(model.published["C"])


def test_model_parallel_ranks_are_neighbours_then_the_pipeline_then_data() -> None:
    """Ranks by stage, data, model: rank 2 is the first of the second data-parallel place, behind
    both stages of the first."""
    places = dict(part.split(": ") for part in placement(MODELS["GPT-3"]).split(", "))
    assert [places[rank] for rank in ("0", "1", "10", "11", "2", "3")] == [
        f"h{host}" for host in range(6)
    ]
    assert sorted(places.values(), key=lambda name: int(name[1:])) == [f"h{h}" for h in range(20)]

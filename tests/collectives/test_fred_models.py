"""The specs of FRED's tables, as `benchmarks.fred` has them."""

from __future__ import annotations

import pytest

from benchmarks.fred.__main__ import TABLES
from benchmarks.fred.models import (
    MODELS,
    STREAMED_COMPUTE_US,
    STREAMED_GAIN,
    STREAMED_LINE_US,
    Model,
    spec_of,
)
from benchmarks.fred.streams import MESH_SHARE
from topologies.spec.spec import SpecError, parse_dict, parse_spec


@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_a_spec_for_every_fabric(name: str) -> None:
    rows, cases = TABLES[name]
    for row in rows:
        found = list(cases(row))
        assert found[0].fabric == "mesh"
        for case in found:
            # Few pieces, as programs are proved right.
            ranks = parse_spec(case.spec.replace("16KiB", "4MiB")).workload.ranks
            assert ranks == (MODELS[row].ranks if row in MODELS else ranks)


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
    hosts = parse_spec(spec_of(MODELS["GPT-3"], "C")).plan.hosts
    assert [hosts[rank] for rank in (0, 1, 10, 11, 2, 3)] == [f"h{host}" for host in range(6)]
    assert sorted(hosts, key=lambda name: int(name[1:])) == [f"h{h}" for h in range(20)]


def test_training_is_placed_so_too_and_what_has_no_such_groups_is_refused() -> None:
    raw = {
        "name": "placed",
        "fabric": {"kind": "flat", "hosts": 8},
        "placement": "model-stage-data",
        "workload": {
            "kind": "training",
            "parallelism": {"tensor": 2, "pipeline": 2, "data": 2},
            "layers": 2,
        },
    }
    hosts = parse_dict(raw).plan.hosts
    assert [hosts[rank] for rank in (0, 1, 4, 5, 2, 3, 6, 7)] == [f"h{host}" for host in range(8)]
    raw["workload"] = {"kind": "dlrm", "ranks": 8}
    with pytest.raises(SpecError, match="expected a workload of kind training, or layers"):
        parse_dict(raw)


def test_computing_of_what_is_streamed_gives_the_published_ratio_at_the_hot_links_share() -> None:
    """(2N - 1) P on a link of 750 GB/s: 0.65 of the line rate."""
    assert pytest.approx(0.65, abs=0.002) == MESH_SHARE
    at_line_rate = STREAMED_COMPUTE_US + STREAMED_LINE_US
    on_mesh = STREAMED_COMPUTE_US + STREAMED_LINE_US / MESH_SHARE
    assert on_mesh / at_line_rate == pytest.approx(STREAMED_GAIN)

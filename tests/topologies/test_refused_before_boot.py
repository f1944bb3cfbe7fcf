"""A spec that cannot run is refused as a mistake; one that looks so and can run is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emulator.cut_off import cut_off_by_faults
from emulator.guest_memory import guest_memory_bytes
from emulator.idle_time import longest_idle_ns
from emulator.session import run_session
from topologies.spec.layers_section import LayersWorkload
from topologies.spec.spec import Spec, SpecError, load_spec, parse_dict
from workloads.models.flow_sizes import MOST_FLOWS, flow_count, flows_of


def _spec(**sections: Any) -> Spec:
    head = {"name": "x", "fabric": {"kind": "flat", "hosts": 4}}
    return parse_dict(head | sections)


def _collective(kind: str, dtype: str) -> dict[str, Any]:
    one = {"kind": kind, "size": 800}
    return {"kind": "collectives", "ranks": 4, "dtype": dtype, "operations": [one]}


@pytest.mark.parametrize("kind", ["all_gather", "broadcast", "scatter", "gather", "all_to_all"])
def test_gloo_has_no_collectives_of_int16(kind: str) -> None:
    with pytest.raises(SpecError, match=r"workload\.dtype: found int16; Gloo's collectives do not"):
        _spec(workload=_collective(kind, "int16"))
    assert _spec(workload=_collective(kind, "int32"))
    # Messages of two ranks are bytes, and programs move what they like.
    assert _spec(workload=_collective("permutation", "int16"))
    if kind == "all_gather":
        program = {"backend": "programs", kind: {"algorithm": "ring"}}
        assert _spec(workload=_collective(kind, "int16"), collectives=program)


def test_hosts_that_forward_do_not_coalesce() -> None:
    rails = {"kind": "rails", "servers": 2, "hosts_per_server": 2}
    workload = _collective("all_reduce", "float32")
    virtual = {"receive_coalescing": "8us"}
    with pytest.raises(SpecError, match="receive_coalescing: found 8us; expected 0 where hosts"):
        _spec(fabric=rails, workload=workload, virtual=virtual)
    assert _spec(workload=workload, virtual=virtual)


@pytest.mark.parametrize("sizes", [1, "1KB", "websearch"])
def test_flows_are_bounded_by_what_is_drawn(sizes: int | str) -> None:
    asked = {"kind": "flows", "ranks": 4, "sizes": sizes}
    with pytest.raises(
        SpecError, match=r"workload: found about .* flows; expected at most 100,000"
    ):
        _spec(workload=asked | {"rate": "10Tbps", "duration": "10s"})
    few = asked | {"rate": "1Gbps", "duration": "10us" if sizes == 1 else "100ms"}
    workload: Any = _spec(workload=few).workload
    # Within four standard deviations of a Poisson process.
    expected = flow_count(workload)
    assert abs(len(flows_of(workload)) - expected) < 4 * expected**0.5 + 1
    assert expected < MOST_FLOWS


def test_a_collective_of_no_bytes_is_none() -> None:
    one = {"name": "e", "forward": {"compute": "1us", "collective": "all_gather", "size": 0}}
    spec = _spec(workload={"kind": "layers", "ranks": 4, "parallelism": "model", "layers": [one]})
    assert isinstance(spec.workload, LayersWorkload)
    assert spec.workload.layers[0].forward.collective is None
    del one["forward"]["size"]  # type: ignore[attr-defined]
    with pytest.raises(SpecError, match="expected a collective and its size, or neither"):
        _spec(workload={"kind": "layers", "ranks": 4, "parallelism": "model", "layers": [one]})


def test_a_filter_that_libpcap_does_not_know_is_told_before_anything_starts(tmp_path: Path) -> None:
    workload = _collective("all_reduce", "float32")
    spec = _spec(workload=workload, capture={"filter": "tpc port 5"})
    said: list[object] = []
    with pytest.raises(SpecError, match=r"capture\.filter: found tpc port 5; expected an express"):
        run_session(spec, "virtual", tmp_path / "run", said.append)
    assert said == []
    assert list(tmp_path.iterdir()) == []


def test_what_a_spec_waits_for_is_no_deadlock(tmp_path: Path) -> None:
    one = {"name": "l", "forward": {"compute": "4000s"}, "update": "10s"}
    layers = {"kind": "layers", "ranks": 2, "parallelism": "data", "layers": [one]}
    assert longest_idle_ns(_spec(workload=layers), tmp_path) == 4000 * 10**9
    jobs = [
        {"name": "a", "workload": _collective("all_reduce", "float32") | {"ranks": 2}},
        {"name": "b", "workload": layers, "start": "7200s"},
    ]
    assert longest_idle_ns(_spec(jobs=jobs), tmp_path) == 11_200 * 10**9
    assert longest_idle_ns(_spec(workload=_collective("all_reduce", "float32")), tmp_path) == 0


def test_a_link_that_stays_down_is_named_with_who_is_behind_it() -> None:
    workload = _collective("all_reduce", "float32")
    down = {"kind": "link-down", "link": "h1-s0", "at": "1ms"}
    assert cut_off_by_faults(_spec(workload=workload, faults=[down])) == (
        "link h1-s0 is down from 1ms on, and nothing brings it back: rank 1 on h1 cannot reach "
        "rank 0 on h0, rank 2 on h2, rank 3 on h3, and each waits"
    )
    up = {"kind": "link-up", "link": "h1-s0", "at": "2ms"}
    assert cut_off_by_faults(_spec(workload=workload, faults=[down, up])) is None
    assert cut_off_by_faults(_spec(workload=workload, faults=[down | {"duration": "1s"}])) is None
    two_ways = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 2}
    redundant = [down | {"link": "leaf0-spine0"}]
    assert cut_off_by_faults(_spec(fabric=two_ways, workload=workload, faults=redundant)) is None


def test_set_can_complete_a_spec(tmp_path: Path) -> None:
    """A file that is no whole spec by itself, and one whose mistake is put right."""
    file = tmp_path / "small.yaml"
    file.write_text(
        "fabric: {kind: flat, hosts: 2}\n"
        "workload: {kind: collectives, ranks: 4, operations: [{kind: all_reduce, size: 1MB}]}\n"
    )
    with pytest.raises(SpecError, match=r"small\.yaml: line 2: workload\.ranks: found 4; expected"):
        load_spec(file)
    assert load_spec(file, overrides={"fabric.hosts": "8"}).ranks == 4
    with pytest.raises(SpecError, match=r"small\.yaml: line 2: workload\.ranks: found 4; expected"):
        load_spec(file, overrides={"seed": "2"})
    with pytest.raises(
        SpecError, match=r"with --set: workload\.ranks: found 5; expected at most 3"
    ):
        load_spec(file, overrides={"fabric.hosts": "3", "workload.ranks": "5"})
    file.write_text("fabric: {kind: flat, hosts: 2}\n")
    whole = load_spec(file, overrides={"workload": "{kind: dlrm, ranks: 2}"})
    assert whole.name == "small" and whole.workload.kind == "dlrm"


def test_memory_counts_messages_and_not_their_bytes_alone(tmp_path: Path) -> None:
    """With 98,000 flows of 4 bytes each of 4 ranks held 288 MB: 5.4 KB for an end of a flow."""
    few = {"kind": "flows", "ranks": 4, "sizes": 4, "pattern": "random"}
    many = few | {"rate": "100Mbps", "duration": "4ms"}
    posted = len(flows_of(_spec(workload=many).workload))  # type: ignore[arg-type]
    more = [guest_memory_bytes(_spec(workload=each), tmp_path) for each in (few, many)]
    assert more[1] - more[0] >= 2 * posted * 5400

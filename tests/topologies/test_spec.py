"""Specs that are right: resolved, written, read again, overridden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import topologies
from tests.topologies.fabric_strategies import any_fabric
from topologies.fabrics.build import build_fabric
from topologies.fabrics.selectors import links_between, select_ports
from topologies.spec.published_kernels import PUBLISHED, share
from topologies.spec.queue_section import Classes, Dctcp, DropTail, Lossless
from topologies.spec.run_sections import Loss
from topologies.spec.spec import Spec, SpecError, load_spec, parse_dict, parse_spec
from topologies.spec.workload_section import ChakraWorkload, DlrmWorkload, TrainingWorkload

PRESETS = sorted(Path(topologies.__file__).parent.glob("*.yaml"))

queues = st.sampled_from(
    [
        {"kind": "droptail"},
        {"kind": "dctcp", "k": "200KB"},
        {"kind": "red", "pmax": 0.5, "ecn": False},
        {"kind": "codel", "ce_threshold": "10us"},
        {"kind": "fq_codel", "quantum": 9000},
        {"kind": "shared", "alpha": 2},
        {"kind": "voq"},
        {"kind": "cells", "cell": "512B", "link_rate": "1.6Tbps", "link_delay": "1us"},
        {"kind": "lossless", "headroom": "100KB", "lossy_priorities": [1]},
    ]
)
workloads = st.sampled_from(
    [
        {"kind": "dlrm", "ranks": 2, "overlap": False},
        {"kind": "training", "parallelism": {"data": 2}},
        {"kind": "chakra", "path": "/traces/run", "ranks": 2},
        {
            "kind": "collectives",
            "ranks": 2,
            "operations": [
                {"kind": "all_reduce", "size": "1MiB"},
                {"kind": "broadcast", "size": 4096, "root": 1},
                {"kind": "barrier"},
                {"kind": "send_recv", "size": "1GB"},
                {"kind": "incast", "size": 4},
                {"kind": "permutation", "size": "1.5MB", "shift": 1},
            ],
        },
    ]
)
specs = st.fixed_dictionaries(
    {"name": st.just("drawn"), "fabric": any_fabric, "workload": workloads},
    optional={
        "seed": st.integers(0, 2**32 - 1),
        "placement": st.sampled_from(["linear", "random", "strided", {1: "h0", 0: "h1"}]),
        "transport": st.sampled_from([{"congestion_control": "bbr"}, {"ecn": False}]),
        "compute": st.sampled_from(
            [
                {"device": "none"},
                {"device": "h100", "flops": "60TFLOPS"},
                {"device": "custom", "flops": "1TFLOPS", "memory_bandwidth": "3.35TB/s"},
            ]
        ),
        "scale": st.sampled_from(["auto", 1, 1000]),
        "payload": st.sampled_from(["checked", "timing"]),
        "virtual": st.sampled_from(
            [
                {"memory": "4GiB"},
                {"ranks_per_process": 8, "connections": "lazy"},
                {"connect_only": True},
            ]
        ),
        "counters": st.just({"interval": "10us", "ports": ["hosts"]}),
        "capture": st.just({"points": [], "backend": "ring", "filter": "tcp port 29500"}),
        "predict": st.just(["flow", "alpha-beta"]),
    },
)


@settings(max_examples=80, deadline=None)
@given(specs, queues)
def test_the_resolved_spec_loads_back_equal(raw: dict[str, Any], queue: dict[str, Any]) -> None:
    spec = parse_dict(raw | {"fabric": raw["fabric"] | {"queue": queue}})
    again = parse_spec(spec.to_yaml())
    assert again == spec
    assert again.to_yaml() == spec.to_yaml()
    assert build_fabric(again.fabric) == build_fabric(spec.fabric)


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_presets_are_valid_and_named_after_their_file(path: Path) -> None:
    spec = load_spec(path)
    assert spec.name == path.stem
    assert parse_spec(spec.to_yaml()) == spec


def test_the_main_job_is_as_the_design_says() -> None:
    spec = load_spec(PRESETS[[path.stem for path in PRESETS].index("dlrm-fat-tree-k4")])
    fabric = build_fabric(spec.fabric)
    assert (len(fabric.hosts), len(fabric.switches), len(fabric.links)) == (16, 20, 48)
    assert {(x.rate_bps, x.delay_ns, x.mtu_bytes) for x in fabric.links} == {(10**11, 500, 9000)}
    workload = spec.workload
    assert isinstance(workload, DlrmWorkload)
    assert (workload.ranks, workload.iterations) == (16, 3)
    exchanged = workload.batch_size * workload.sparse_features * workload.embedding_dimension * 4
    assert 1e6 <= exchanged <= 2e6


def test_every_default_is_written_out() -> None:
    text = "fabric: {kind: flat, hosts: 2}\nworkload: {kind: dlrm, ranks: 2}\nname: small\n"
    resolved = yaml.safe_load(parse_spec(text).to_yaml())
    keys = {field.alias or name for name, field in Spec.model_fields.items()}
    # There is either a workload or jobs; beside is of what one of several jobs is made.
    assert set(resolved) == keys - {"jobs", "beside"}
    assert resolved["fabric"]["link"] == {"rate": "100Gbps", "delay": "500ns", "mtu": 9000}
    assert resolved["fabric"]["queue"] == {"kind": "droptail", "buffer": "4MB", "trim": False}
    assert resolved["transport"]["min_rto"] == "200ms"
    assert resolved["workload"]["top_mlp"] == [1024, 1024, 1]


def test_a_file_names_its_spec(tmp_path: Path) -> None:
    file = tmp_path / "my-fabric.yaml"
    file.write_text("fabric: {kind: flat, hosts: 2}\nworkload: {kind: dlrm, ranks: 2}\n")
    assert load_spec(file).name == "my-fabric"


def test_chakra_traces_are_found_beside_the_spec_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "replay.yaml"
    file.write_text("fabric: {kind: flat, hosts: 4}\nworkload: {kind: chakra, path: traces/x}\n")
    with pytest.raises(SpecError, match=r"expected traces .*traces/x\.0\.et"):
        load_spec(file)
    (tmp_path / "traces").mkdir()
    for rank in range(3):
        (tmp_path / "traces" / f"x.{rank}.et").touch()
    workload = load_spec(file).workload
    assert isinstance(workload, ChakraWorkload)
    assert (workload.ranks, workload.path) == (3, str(tmp_path / "traces" / "x"))


def test_training_ranks_follow_from_the_parallelism() -> None:
    raw = {
        "name": "t",
        "fabric": {"kind": "flat", "hosts": 16},
        "workload": {"kind": "training", "parallelism": {"data": 2, "tensor": 4, "pipeline": 2}},
    }
    workload = parse_dict(raw).workload
    assert isinstance(workload, TrainingWorkload)
    assert workload.ranks == 16
    with pytest.raises(SpecError, match=r"ranks = data \* tensor \* pipeline = 16"):
        parse_dict(raw | {"workload": raw["workload"] | {"ranks": 8}})  # type: ignore[operator]


MAIN = load_spec(next(path for path in PRESETS if path.stem == "dlrm-fat-tree-k4"))


def test_overrides_set_dotted_keys() -> None:
    spec = MAIN.with_overrides(
        {"fabric.k": "8", "fabric.link.rate": "400Gbps", "workload.ranks": "128", "seed": "7"}
    )
    assert (len(build_fabric(spec.fabric).hosts), spec.workload.ranks, spec.seed) == (128, 128, 7)
    assert spec.fabric.link.rate_bps == 4 * 10**11
    assert spec.fabric.link.delay_ns == 500
    assert MAIN.workload.ranks == 16


def test_overriding_a_kind_keeps_what_all_kinds_have() -> None:
    queue = MAIN.with_overrides({"fabric.queue.kind": "lossless"}).fabric.queue
    assert isinstance(queue, Lossless)
    assert (queue.buffer_bytes, queue.k_bytes) == (4_000_000, None)
    fabric = MAIN.with_overrides({"fabric.dims": "[4, 4]", "fabric.kind": "torus"}).fabric
    assert fabric.kind == "torus"
    assert fabric.queue == Dctcp(kind="dctcp")
    same = MAIN.with_overrides({"fabric.queue.kind": "dctcp"})
    assert same == MAIN
    classes = {"fabric.queue.kind": "classes", "fabric.queue.classes": "{bulk: {priority: 0}}"}
    queue = MAIN.with_overrides(classes).fabric.queue
    assert isinstance(queue, Classes)
    assert queue.buffer_bytes == DropTail().buffer_bytes


def test_overrides_reach_into_lists_and_absent_sections() -> None:
    two = load_spec(next(path for path in PRESETS if path.stem == "two-hosts"))
    spec = two.with_overrides(
        {
            "workload.operations.0.size": "2MB",
            "virtual.memory": "2GiB",
            "fabric.queues.hosts": "{kind: droptail, buffer: 64MB}",
            "placement": "{0: h1, 1: h0}",
        }
    )
    assert spec.workload.listed is not None
    assert spec.workload.listed.operations[0].size_bytes == 2_000_000
    assert spec.virtual.memory_bytes == 2 * 2**30
    assert spec.fabric.queues == {"hosts": DropTail(buffer="64MB")}  # type: ignore[arg-type]
    assert spec.placement == {0: "h1", 1: "h0"}
    assert spec.with_overrides({"placement.0": "h1"}) == spec
    by_entry = spec.with_overrides({"workload.operations[0].size": "3MB"})
    assert by_entry == spec.with_overrides({"workload.operations.0.size": "3MB"}) != spec


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"fabric.k": "7"}, "fabric.k: found 7; expected an even number"),
        ({"fabric.kk": "8"}, "fabric.kk: found 8; unknown key; did you mean k?"),
        ({"fabrik.k": "8"}, "fabrik: found {k: 8}; unknown key; did you mean fabric?"),
        ({"rate": "8"}, r"rate: found 8; unknown key; did you mean fabric\.link\.rate\?"),
        ({"seed.x": "8"}, "seed.x: found a plain value; expected a key or entry that exists"),
        ({"predict.4": "flow"}, r"predict\[4\]: found a list of 3; expected a key or entry"),
        ({"seed": "[1"}, r"seed: found '\[1'; expected a YAML value"),
        ({"workload.ranks": "32"}, "^override: workload.ranks: found 32; expected at most 16"),
        (
            {"fabric": "{kind: flat, hosts: 8}"},
            r"^override fabric={kind: flat, hosts: 8}: workload\.ranks: found 16; expected at most",
        ),
    ],
)
def test_overrides_have_the_same_errors(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        MAIN.with_overrides(overrides)


def test_ecn_follows_from_transport_and_queues() -> None:
    assert MAIN.ecn
    plain = MAIN.with_overrides(
        {"transport.congestion_control": "cubic", "fabric.queue.kind": "droptail"}
    )
    assert not plain.ecn
    assert plain.with_overrides({"fabric.queues.switches": "{kind: red}"}).ecn
    assert not MAIN.with_overrides({"transport.ecn": "false"}).ecn


def test_published_shares_are_for_known_devices_and_in_place_of_efficiency() -> None:
    h100 = MAIN.with_overrides({"compute.device": "h100", "compute.kernels": "published"}).compute
    large, small = h100.time_ns(10**12, 0, 2), h100.time_ns(10**8, 0, 2)
    assert large == round(10**12 / 989e12 / 0.78 * 1e9)
    assert small == round(10**8 / 989e12 / 0.082 * 1e9)
    assert h100.time_ns(0, 10**9, 2) == round(10**9 / 3350e9 / 0.92 * 1e9)
    with pytest.raises(SpecError, match=r"kernels: published is for device a100, h100; .*v100"):
        MAIN.with_overrides({"compute.device": "v100", "compute.kernels": "published"})
    with pytest.raises(SpecError, match=r"efficiency or kernels: published"):
        MAIN.with_overrides(
            {"compute.device": "a100", "compute.kernels": "published", "compute.efficiency": "0.5"}
        )


@given(st.sampled_from(sorted(PUBLISHED)), st.floats(0, 1e15))
def test_every_size_has_a_share(device: str, size: float) -> None:
    for steps in PUBLISHED[device].plan().values():
        assert 0 < share(steps, size) <= 1
        assert [least for least, _ in steps] == sorted((x for x, _ in steps), reverse=True)


def test_compute_is_a_roofline() -> None:
    v100 = MAIN.compute
    assert v100.time_ns(157 * 10**8, 0, 4) == 1_000_000
    assert v100.time_ns(125 * 10**9, 0, 2) == 1_000_000
    assert v100.time_ns(1, 900 * 10**6, 4) == 1_000_000
    seeds_paper = MAIN.with_overrides({"compute.flops": "60TFLOPS"}).compute
    assert seeds_paper.time_ns(60 * 10**9, 0, 4) == 1_000_000
    assert MAIN.with_overrides({"compute.device": "none"}).compute.time_ns(10**15, 10**15, 4) == 0
    with pytest.raises(ValueError, match="no roofline"):
        MAIN.with_overrides({"compute.device": "real"}).compute.time_ns(1, 1, 4)


def test_fractions_may_be_percentages() -> None:
    fault = "[{kind: loss, link: h0-edge0-0, iteration: 1, duration: 5ms, value: 0.5%}]"
    spec = MAIN.with_overrides({"faults": fault})
    (loss,) = spec.faults
    assert isinstance(loss, Loss)
    assert (loss.value, loss.iteration, loss.duration_ns) == (0.005, 1, 5_000_000)
    assert parse_spec(spec.to_yaml()) == spec


def test_selectors_name_ports() -> None:
    fabric = build_fabric(MAIN.fabric)

    def names(selector: str) -> list[str]:
        return [port.interface for port in select_ports(fabric, selector)]

    assert len(names("all")) == 96
    assert names("hosts") == [f"h{i}-eth0" for i in range(16)]
    assert len(names("switches")) == 80
    assert len(names("edge-agg")) == 32
    assert names("edge0-0") == [f"edge0-0-eth{i}" for i in range(4)]
    assert names("edge0-0:h1") == names("edge0-0-eth1") == ["edge0-0-eth1"]
    assert names("host:pod1") == [f"h{i}-eth0" for i in range(4, 8)]
    for nothing in ("host:pod9", "host:leaf0", "h16", ""):
        with pytest.raises(ValueError, match="expected all, hosts, switches"):
            select_ports(fabric, nothing)


def test_links_are_named_by_their_ends() -> None:
    fabric = build_fabric(MAIN.fabric)
    (link,) = links_between(fabric, "edge0-1-agg0-0")
    assert {link.a.node, link.b.node} == {"edge0-1", "agg0-0"}
    assert links_between(fabric, "agg0-0-edge0-1") == (link,)
    with pytest.raises(ValueError, match="two nodes with a link"):
        links_between(fabric, "h0-h1")

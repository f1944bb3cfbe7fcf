"""CollNet: what NCCL chooses where the network's switches reduce, and programs that are right."""

from __future__ import annotations

import pytest

from collectives.kinds import Kind, Shape
from collectives.nccl.log import log_lines
from collectives.nccl.of_run import tuner_of
from collectives.schedule.program import ProgramSchedule
from collectives.settings import schedule_of, settings_of
from collectives.verify import verify
from topologies.spec.spec import Spec, SpecError, parse_dict

RAILS = [f"rail{number}" for number in range(8)]


def spec(servers: int = 2, **sections: object) -> Spec:
    raw: dict[str, object] = {
        "name": "collnet",
        "fabric": {"kind": "rails", "server": "dgx-h100", "servers": servers},
        "workload": {
            "kind": "collectives",
            "ranks": 8 * servers,
            "operations": [{"kind": "all_reduce", "size": "4MiB"}],
        },
        "aggregation": {"switches": ["rail"]},
        "collectives": {"backend": "nccl"},
    }
    return parse_dict(raw | sections)


def with_algorithm(name: str, **more: str) -> dict[str, object]:
    return {"backend": "nccl", "env": {"NCCL_ALGO": name} | more}


def schedule(found: Spec, size_bytes: int = 1 << 22) -> ProgramSchedule:
    ranks = found.workload.ranks
    one = schedule_of(settings_of(found), Shape(Kind.ALL_REDUCE, size_bytes, ranks, 4))
    assert isinstance(one, ProgramSchedule)
    return one


def choices(found: Spec, *powers: int) -> list[str]:
    tuner = tuner_of(settings_of(found), tuple(range(found.workload.ranks)))
    return [tuner.choose(Kind.ALL_REDUCE, 1 << power).algorithm for power in powers]


class TestChoice:
    def test_nvls_gives_its_sums_to_the_network(self) -> None:
        # NVLS over several servers is NCCL's way with SHARP on Hopper.
        assert choices(spec(16), 10, 22, 30) == ["NVLS"] * 3
        assert choices(spec(2), 10, 22) == ["Tree", "NVLS"]

    def test_gpus_that_do_not_multicast(self) -> None:
        fabric = {"kind": "rails", "server": "dgx-a100", "servers": 16}
        found = choices(spec(16, fabric=fabric), 10, 22)
        assert found == ["CollNetDirect"] * 2

    def test_servers_too_few_for_the_threshold(self) -> None:
        env = {"NCCL_COLLNET_NODE_THRESHOLD": "4", "NCCL_NVLS_ENABLE": "0"}
        section = {"backend": "nccl", "env": env}
        assert not {*choices(spec(2, collectives=section), 10, 20, 22)} & {"CollNetDirect"}
        assert "CollNetDirect" in choices(spec(4, collectives=section), 22)

    def test_hosts_of_one_gpu_have_chains(self) -> None:
        fabric = {"kind": "fat-tree", "k": 4}
        found = spec(2, fabric=fabric, aggregation={"switches": ["all"]})
        assert choices(found, 3, 20) == ["CollNetChain"] * 2

    def test_model_of_time(self) -> None:
        tuner = tuner_of(settings_of(spec(4)), tuple(range(32)))
        latency, gbytes = tuner.model["AllReduce", "CollNetDirect", "Simple"]
        # 2 * (3.7 + 7 * 0.4) + 31 us; 8 channels of 48 GB/s, 0.85 of it on Hopper, half.
        assert latency == pytest.approx(44.0)
        assert gbytes == pytest.approx(8 * 48 * 0.85 / 2)
        latency, gbytes = tuner.model["AllReduce", "CollNetChain", "Simple"]
        assert latency == pytest.approx(2 * 7 * 2.8 + 30)
        assert gbytes == pytest.approx(8 * 48 / 2)

    def test_log_tells_it(self) -> None:
        tuner = tuner_of(settings_of(spec(2)), tuple(range(16)))
        text = "\n".join(log_lines(tuner, [(Kind.ALL_REDUCE, 1 << 22)]))
        assert "Pattern 6, crossNic 0, nChannels 8, bw 48.000000/48.000000" in text
        assert "CollNetDirect channel 0 rank 9 down  8  10  11  12  13  14  15 nDown 7 " in text


class TestPrograms:
    @pytest.mark.parametrize("size_bytes", [8, 1 << 20])
    @pytest.mark.parametrize("name", ["CollNetDirect", "CollNetChain", "NVLS"])
    def test_sums_are_right(self, name: str, size_bytes: int) -> None:
        four = {"kind": "rails", "server": "dgx-h100", "servers": 2, "hosts_per_server": 4}
        found = schedule(spec(1, fabric=four, collectives=with_algorithm(name)), size_bytes)
        verify(found.chunks[0].program)
        names = [one.name for one in found.aggregators]
        assert [one for one in names if one.startswith("rail")] == RAILS[:4]
        assert found.chunks[0].program.message_count < 20_000

    def test_a_head_sends_its_part_once(self) -> None:
        """A ring sends 2 * 15/16 of the data over NICs in all, heads 1/8 each, once."""
        size_bytes = 1 << 22
        program = schedule(spec(2, collectives=with_algorithm("CollNetDirect"))).chunks[0].program
        to_switches = sum(
            program.elements_of(message.blocks, size_bytes // 4) * 4
            for message in program.messages()
            if message.source < 16 <= message.destination
        )
        assert to_switches == 2 * size_bytes

    def test_trees_of_several_switches(self) -> None:
        fabric = {
            "kind": "rails",
            "server": "dgx-h100",
            "servers": 4,
            "servers_per_leaf": 2,
            "spines": 2,
            "pxn": False,
        }
        section = {"switches": ["leaf", "spine"]}
        collectives = with_algorithm("CollNetDirect")
        found = schedule(spec(4, fabric=fabric, aggregation=section, collectives=collectives))
        verify(found.chunks[0].program)
        names = [one.name for one in found.aggregators]
        assert names[:2] == ["leaf0", "leaf1"]
        assert len(names) == 3

    def test_kernels_are_launched(self) -> None:
        # CollNetDirect: two steps inside a server, none without.
        assert schedule(spec(2, collectives=with_algorithm("CollNetDirect"))).launch_ns == 7_400
        assert schedule(spec(2, collectives=with_algorithm("Ring")), 1 << 10).launch_ns == 6_600
        told = {"backend": "nccl", "launch": "3us", "env": {"NCCL_ALGO": "Ring"}}
        assert schedule(spec(2, collectives=told)).launch_ns == 3_000


class TestRefused:
    @pytest.mark.parametrize(
        ("sections", "said"),
        [
            ({"aggregation": {"switches": ["spine"]}}, "spine"),
            ({"aggregation": {"dtypes": ["int32"]}}, "rail0 reduces int32, and not float32"),
            ({"aggregation": {"slots": 0}}, "rail0 has no slots"),
            ({"aggregation": {"when_lost": "fall-back"}}, "trees, middles or when_lost"),
            (
                {"aggregation": {"nodes": {"rail3": {"operations": ["max"]}}}},
                "rail3 reduces by max, and not sum",
            ),
        ],
    )
    def test_by_name(self, sections: dict[str, object], said: str) -> None:
        with pytest.raises(SpecError, match=said):
            spec(2, **sections, collectives=with_algorithm("CollNetDirect"))

    def test_not_chosen_where_it_cannot_be(self) -> None:
        found = spec(16, aggregation={"slots": 0})
        assert not {*choices(found, 10, 22)} & {"CollNetDirect", "CollNetChain"}

    def test_an_algorithm_of_switches_goes_first(self) -> None:
        collectives = {"backend": "nccl", "all_reduce": {"algorithm": "aggregation"}}
        fabric = {"kind": "fat-tree", "k": 4}
        section = {"switches": ["all"]}
        found = spec(2, fabric=fabric, aggregation=section, collectives=collectives)
        assert schedule(found, 1024).algorithm == "aggregation"

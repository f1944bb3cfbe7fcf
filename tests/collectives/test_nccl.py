"""NCCL's choices: rings, trees and channels as public logs have them; programs that are right."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectives.algorithms.base import DoesNotFit
from collectives.chunking import Chunking
from collectives.in_network.node import Aggregator
from collectives.kinds import Kind, Shape
from collectives.nccl.communicator import Communicator
from collectives.nccl.environment import Environment
from collectives.nccl.log import compared, differences, log_lines, read_log
from collectives.nccl.of_run import tuner_of
from collectives.nccl.schedule import nccl_algorithm, nccl_schedule
from collectives.nccl.server import GPU_MODELS, Nic, PathType, Server
from collectives.nccl.switches import Switches
from collectives.nccl.tuner import Tuner
from collectives.nccl.tuner_file import read_tuner_file
from collectives.program import PROGRAM_KINDS
from collectives.schedule.program import ProgramSchedule
from collectives.settings import schedule_of, settings_of
from collectives.verify import verify
from topologies.spec.spec import SpecError, parse_dict


def server(gpus: tuple[int, ...] = tuple(range(8)), model: str = "h100") -> Server:
    found = GPU_MODELS[model]
    nics = tuple(Nic(number, 50.0, number) for number in range(8))
    return Server(found, gpus, nics, found.nvlinks * found.nvlink_gbytes)


def communicator(
    servers: int, environment: Environment | None = None, nvls: bool = False, sharp: bool = False
) -> Communicator:
    ranks = tuple(tuple(range(8 * number, 8 * number + 8)) for number in range(servers))
    return Communicator((server(),) * servers, ranks, environment or Environment(), nvls, sharp)


def single(servers: int, gbytes: float = 12.5) -> Communicator:
    """Servers of one GPU and one NIC."""
    one = Server(GPU_MODELS["h100"], (0,), (Nic(0, gbytes, 0),), 370.8)
    return Communicator((one,) * servers, tuple((number,) for number in range(servers)))


class TestAsLogsHaveIt:
    """Lines of public logs: NVIDIA/nccl issue 1538 (2 servers of 8, 2.22.3), and the README of a
    test on 1 and 2 p5.48xlarge (24, 16, 32, 32 and 16, 16, 16, 2 channels)."""

    def test_graph_of_two_servers(self) -> None:
        # "Pattern 4, crossNic 2, nChannels 8, bw 48.000000/48.000000, type NVL/PIX"
        graph = communicator(2).ring_graph
        assert (graph.cross_nic, graph.channels) == (2, 8)
        assert (graph.bw_intra, graph.bw_inter) == (48.0, 48.0)
        assert (graph.type_intra, graph.type_inter) == (PathType.NVL, PathType.PIX)

    def test_rings_of_two_servers(self) -> None:
        rings = communicator(2).rings
        assert rings[1] == (0, 8, 15, 14, 13, 12, 11, 10, 9, 1, 2, 3, 4, 5, 6, 7)
        assert rings[2] == (0, 7, 6, 5, 4, 3, 11, 12, 13, 14, 15, 8, 9, 10, 2, 1)
        assert rings[3] == (0, 1, 2, 10, 9, 8, 15, 14, 13, 12, 11, 3, 4, 5, 6, 7)
        assert rings[4] == (0, 7, 6, 5, 13, 14, 15, 8, 9, 10, 11, 12, 4, 3, 2, 1)
        assert rings[5] == (0, 1, 2, 3, 4, 12, 11, 10, 9, 8, 15, 14, 13, 5, 6, 7)

    @pytest.mark.parametrize(("servers", "channels"), [(1, (24, 16, 32, 32)), (2, (16, 16, 16, 2))])
    def test_channels(self, servers: int, channels: tuple[int, ...]) -> None:
        comm = communicator(servers, nvls=True)
        assert channels == (
            *(comm.channels, comm.nvls_channels),
            *(comm.p2p_channels, comm.p2p_channels_per_peer),
        )

    def test_ring_of_one_server(self) -> None:
        assert set(communicator(1).rings) == {tuple(range(8))}


class TestTuner:
    def test_times_are_the_models(self) -> None:
        # Tree, LL, 2 servers of 8: 6.8 + 2 * (7 * 0.6 + 1 * 5.0).
        latency, _ = Tuner(communicator(2)).model["AllReduce", "Tree", "LL"]
        assert latency == pytest.approx(25.2)
        # As much once more for each step over NICs whose plugin tells it; twice with Simple.
        told = replace(server(), nics=tuple(Nic(number, 50.0, number, 75.0) for number in range(8)))
        far = Communicator((told, told), communicator(2).ranks)
        assert Tuner(far).model["AllReduce", "Tree", "LL"][0] == pytest.approx(25.2 + 2 * 75)
        simple = 8.4 + 2 * (7 * 4.0 + 14.0 + 2 * 75)
        assert Tuner(far).model["AllReduce", "Tree", "Simple"][0] == pytest.approx(simple)
        # Ring, Simple: 8 channels of 48 GB/s, of which 16 of 30 steps count.
        _, bandwidth = Tuner(communicator(2)).model["AllReduce", "Ring", "Simple"]
        assert bandwidth == pytest.approx(8 * 48 * 16 / 30)

    def test_crossovers(self) -> None:
        tuner = Tuner(communicator(2))
        found = [
            tuner.choose(Kind.ALL_REDUCE, size) for size in (1 << 10, 1 << 20, 1 << 25, 1 << 30)
        ]
        assert [(one.algorithm, one.protocol) for one in found] == [
            *(("Tree", "LL"), ("Tree", "LL128"), ("Ring", "LL128"), ("Ring", "Simple"))
        ]

    def test_nvls_where_there_is_one(self) -> None:
        one = Tuner(communicator(1, nvls=True)).choose(Kind.ALL_REDUCE, 1 << 30)
        two = Tuner(communicator(2, nvls=True)).choose(Kind.ALL_REDUCE, 1 << 30)
        assert (one.algorithm, two.algorithm) == ("NVLS", "NVLSTree")

    def test_pat_with_a_gpu_a_server(self) -> None:
        assert Tuner(single(16)).choose(Kind.ALL_GATHER, 1 << 12).algorithm == "PAT"

    def test_sockets_have_no_ll128(self) -> None:
        one = Server(GPU_MODELS["h100"], (0,), (Nic(0, 12.5, 0),), 370.8, gdr=False)
        tuner = Tuner(Communicator((one, one), ((0,), (1,))))
        assert tuner.time_us("AllReduce", "Ring", "LL128", 1 << 20) is None

    @given(st.integers(3, 33), st.sampled_from(["Ring", "Tree"]))
    @settings(max_examples=25, deadline=None)
    def test_variables_are_heeded(self, power: int, algorithm: str) -> None:
        given_ = Environment({"NCCL_ALGO": algorithm, "NCCL_PROTO": "^LL128"})
        found = Tuner(communicator(2, given_)).choose(Kind.ALL_REDUCE, 1 << power)
        assert found.algorithm == algorithm
        assert found.protocol != "LL128"

    def test_lists_by_function(self) -> None:
        environment = Environment({"NCCL_ALGO": "ring;allreduce:tree"})
        tuner = Tuner(communicator(2, environment))
        assert tuner.choose(Kind.ALL_REDUCE, 1 << 30).algorithm == "Tree"
        assert tuner.choose(Kind.ALL_GATHER, 1 << 30).algorithm == "Ring"

    def test_channels_are_bounded(self) -> None:
        environment = Environment({"NCCL_MAX_NCHANNELS": "4"})
        assert communicator(2, environment).channels == 4
        environment = Environment({"NCCL_MIN_NCHANNELS": "32"})
        assert communicator(2, environment).channels == 32

    def test_a_file_goes_first(self, tmp_path: Path) -> None:
        path = tmp_path / "tuner.csv"
        path.write_text("# ours\nallreduce,0,65536,ring,simple,2,-1,-1,-1,-1\n")
        tuner = Tuner(communicator(2), file=read_tuner_file(str(path)))
        found = tuner.choose(Kind.ALL_REDUCE, 1 << 16)
        assert (found.algorithm, found.protocol, found.channels) == ("Ring", "Simple", 2)
        assert tuner.choose(Kind.ALL_REDUCE, 1 << 17).algorithm == "Tree"

    @pytest.mark.parametrize(
        ("given_", "key"),
        [
            ({"NCCL_ALGO": "Rings"}, "env.NCCL_ALGO"),
            ({"NCCL_ALGO": "ring;tree"}, "env.NCCL_ALGO"),
            ({"NCCL_BUFFSIZE": "much"}, "env.NCCL_BUFFSIZE"),
            ({"NCCL_IB_QPS_PER_CONNECTION": "65"}, "env.NCCL_IB_QPS_PER_CONNECTION"),
            ({"NCCL_UNKNOWN": "1"}, "env.NCCL_UNKNOWN"),
        ],
    )
    def test_wrong_variables(self, given_: dict[str, str], key: str) -> None:
        with pytest.raises(DoesNotFit) as error:
            Environment(given_)
        assert error.value.key == key

    @pytest.mark.parametrize("row", ["allreduce,0", "reduceall,0,1,ring,ll,1,1,1", "a\nb"])
    def test_wrong_files(self, tmp_path: Path, row: str) -> None:
        path = tmp_path / "tuner.csv"
        path.write_text(row + "\n")
        with pytest.raises(DoesNotFit, match=r"line 1"):
            read_tuner_file(str(path))


UNEVEN = Communicator((server((0, 1, 2)), server((3, 4))), ((0, 1, 2), (3, 4)))


class TestPrograms:
    @pytest.mark.parametrize("kind", PROGRAM_KINDS)
    @pytest.mark.parametrize("comm", [single(2), single(5), UNEVEN], ids=["2x1", "5x1", "3+2"])
    @pytest.mark.parametrize("size", [1 << 10, 1 << 20, 1 << 25])
    def test_right(self, kind: Kind, comm: Communicator, size: int) -> None:
        size -= size % (4 * comm.size)
        found = nccl_schedule(Tuner(comm), Shape(kind, size, comm.size, 4), Chunking())
        verify(found.chunks[0].program)

    @given(
        kind=st.sampled_from(PROGRAM_KINDS),
        algorithm=st.sampled_from(["Ring", "Tree,Ring"]),
        protocol=st.sampled_from(["LL", "LL128", "Simple"]),
        ranks=st.integers(2, 7),
        root=st.integers(0, 6),
        power=st.integers(6, 24),
    )
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_right_for_any(
        self, kind: Kind, algorithm: str, protocol: str, ranks: int, root: int, power: int
    ) -> None:
        one = single(ranks)
        environment = Environment({"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol})
        comm = Communicator(one.servers, one.ranks, environment)
        size = max(1, (1 << power) // (4 * ranks)) * 4 * ranks
        rooted = root % ranks if kind.traits.rooted else 0
        found = nccl_schedule(Tuner(comm), Shape(kind, size, ranks, 4, rooted), Chunking())
        verify(found.chunks[0].program)

    def test_a_ring_of_16_is_right(self) -> None:
        shape = Shape(Kind.ALL_REDUCE, 1 << 25, 16, 4)
        found = nccl_schedule(Tuner(communicator(2)), shape, Chunking())
        program = found.chunks[0].program
        verify(program)
        # 15/16 of the data twice: that is what a ring sends.
        assert max(program.sent_bytes(1 << 25, 4)) == pytest.approx(
            2 * 15 / 16 * (1 << 25), rel=0.01
        )

    def test_step_time_is_the_protocols(self) -> None:
        shape = Shape(Kind.ALL_REDUCE, 1 << 10, 16, 4)
        assert nccl_schedule(Tuner(communicator(2)), shape, Chunking()).endpoint_delay_ns == 600

    def test_nvls_needs_switches(self) -> None:
        tuner = Tuner(communicator(1, nvls=True))
        with pytest.raises(DoesNotFit, match="switches reduce on rails, over TCP"):
            nccl_algorithm(tuner, Shape(Kind.ALL_REDUCE, 1 << 30, 8, 4))

    @given(
        servers=st.integers(1, 5),
        kind=st.sampled_from([Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER]),
        power=st.integers(12, 26),
    )
    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_nvls_is_right(self, servers: int, kind: Kind, power: int) -> None:
        if servers > 1:
            kind = Kind.ALL_REDUCE
        environment = Environment({"NCCL_ALGO": "nvls,nvlstree", "NCCL_NVLS_ENABLE": "2"})
        comm = communicator(servers, environment, nvls=True)
        nodes = tuple(Aggregator(f"server{n}", n, 1 << 40, 25_000) for n in range(servers))
        switches = Switches(nodes, tuple(range(servers)), (), 32_768)
        size = max(1, (1 << power) // (4 * comm.size)) * 4 * comm.size
        shape = Shape(kind, size, comm.size, 4)
        program = nccl_schedule(Tuner(comm), shape, Chunking(), switches).chunks[0].program
        verify(program)
        if kind is Kind.ALL_REDUCE:
            # A GPU sends its data once, and as a head its part of the result; over a double tree
            # the heads of a part send it up and down in addition.
            parts = 1 / 8 if servers == 1 else 4 / 8
            sent = program.sent_bytes(size, 4)
            assert size <= min(sent[: comm.size])
            assert max(sent[: comm.size]) <= size * (1 + parts) * 1.1 + (1 << 16)


def spec(collectives: dict[str, object], ranks: int = 16) -> dict[str, object]:
    return {
        "name": "nccl",
        "fabric": {"kind": "rails", "server": "dgx-h100", "servers": 2},
        "workload": {
            "kind": "collectives",
            "ranks": ranks,
            "operations": [{"kind": "all_reduce", "size": "1MiB"}],
        },
        "collectives": {"backend": "nccl"} | collectives,
    }


class TestSpec:
    def test_schedule_of_a_spec(self) -> None:
        found = parse_dict(spec({}))
        shape = Shape(Kind.ALL_REDUCE, 1 << 20, 16, 4)
        schedule = schedule_of(settings_of(found), shape)
        assert isinstance(schedule, ProgramSchedule)
        assert schedule.algorithm == "nccl"

    def test_an_entry_goes_first(self) -> None:
        found = parse_dict(spec({"all_reduce": {"algorithm": "ring"}}))
        schedule = schedule_of(settings_of(found), Shape(Kind.ALL_REDUCE, 1 << 20, 16, 4))
        assert schedule.algorithm == "ring"

    def test_groups_have_their_own_servers(self) -> None:
        settings_ = settings_of(parse_dict(spec({})))
        shape = Shape(Kind.ALL_GATHER, 1 << 24, 2, 4)
        # One NIC between servers; NVLink inside has many channels.
        channels = [
            len(schedule_of(settings_, shape, members=members).chunks[0].program.participants[0])
            for members in ((0, 8), (0, 1))
        ]
        assert channels == [4, 24]

    def test_ranks_need_not_search(self) -> None:
        settings_ = settings_of(parse_dict(spec({})))
        assert settings_.servers is not None
        assert "0,1,2,3,4,5,6,7;True;nvls" in settings_.servers.searched

    @pytest.mark.parametrize(
        ("section", "said"),
        [
            ({"version": "2.19"}, r"collectives\.version: found 2\.19; allowed: 2\.27"),
            (
                {"env": {"NCCL_ALGO": "NVLSTree", "NCCL_NVLS_ENABLE": "0"}},
                "NVLS: NCCL_NVLS_ENABLE is 0",
            ),
            (
                {"env": {"NCCL_ALGO": "CollNetChain"}},
                "CollNet: there is no section aggregation",
            ),
            (
                {"env": {"NCCL_ALGO": "CollNetChain", "NCCL_COLLNET_ENABLE": "1"}},
                "NCCL_COLLNET_ENABLE: found CollNet in a run.*with a section aggregation",
            ),
            ({"backend": "programs", "launch": "5us"}, r"collectives\.launch: found 5"),
            ({"backend": "programs", "env": {"NCCL_ALGO": "Ring"}}, "expected backend: nccl"),
            ({"backend": "programs", "net_latency": "75us"}, r"collectives\.net_latency: found 75"),
            ({"tuner": "/nowhere.csv"}, r"collectives\.tuner: found /nowhere\.csv"),
        ],
    )
    def test_mistakes(self, section: dict[str, object], said: str) -> None:
        with pytest.raises(SpecError, match=said):
            parse_dict(spec(section))

    def test_a_plugins_latency(self) -> None:
        sections: tuple[dict[str, object], ...] = ({}, {"net_latency": "75us"})
        latencies = [
            tuner_of(settings_of(parse_dict(spec(given))), tuple(range(16))).model[
                "AllReduce", "Tree", "LL"
            ][0]
            for given in sections
        ]
        assert latencies[1] - latencies[0] == pytest.approx(2 * 75)

    def test_switches_reduce_where_they_can(self) -> None:
        raw = spec({"env": {"NCCL_ALGO": "NVLSTree"}})
        shape = Shape(Kind.ALL_REDUCE, 1 << 20, 16, 4)
        schedule = schedule_of(settings_of(parse_dict(raw)), shape)
        assert [one.name for one in schedule.aggregators] == ["server0", "server1"]
        small = spec({})
        small["workload"] = {
            "kind": "collectives",
            "ranks": 16,
            "operations": [{"kind": "all_reduce", "size": 8192}],
        }
        assert settings_of(parse_dict(small)).aggregation is None  # NCCL chooses a tree
        fabric = {"kind": "rails", "server": "dgx-h100", "servers": 2, "spines": 1}
        for enabled, said in (("0", "NVLS_ENABLE is 0"), ("2", "switches reduce on rails")):
            raw = spec({"env": {"NCCL_ALGO": "NVLSTree", "NCCL_NVLS_ENABLE": enabled}})
            with pytest.raises(SpecError, match=said):
                parse_dict(raw | {"transport": {"kind": "roce"}, "fabric": fabric})

    def test_presets(self) -> None:
        found = parse_dict(spec({}))
        classes = {link.link_class: link for link in found.plan.fabric.links}
        assert classes["nic"].rate_bps == 400_000_000_000
        assert classes["scale-up"].rate_bps == 2_966_400_000_000
        assert len(found.plan.fabric.hosts) == 16
        again = parse_dict(found.to_dict())
        assert again == found

    def test_given_links_go_before_presets(self) -> None:
        raw = spec({})
        raw["fabric"] = {
            "kind": "rails",
            "server": "dgx-a100",
            "servers": 2,
            "links": {"nic": {"rate": "100Gbps"}},
        }
        rates = {link.link_class: link.rate_bps for link in parse_dict(raw).plan.fabric.links}
        assert rates["nic"] == 100_000_000_000
        assert rates["scale-up"] == 1_920_000_000_000


PUBLIC = """\
worker-0:5663:5712 [0] NCCL INFO Pattern 4, crossNic 2, nChannels 8, bw 48.000000/48.000000, type NVL/PIX, sameChannels 0
worker-0:5663:5712 [0] NCCL INFO Channel 01/16 :    0   8  15  14  13  12  11  10   9   1   2   3   4   5   6   7
worker-0:5663:5712 [0] NCCL INFO Channel 02/16 :    0   7   6   5   4   3  11  12  13  14  15   8   9  10   2   1
worker-0:5663:5712 [0] NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer
worker-0:5663:5712 [0] NCCL INFO AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
"""  # noqa: E501
"""Lines of public logs (NVIDIA/nccl issue 1538 among them), their hosts and addresses left out."""


PUBLISHED_RINGS = (
    (0, 7, 6, 5, 4, 3, 2, 1, 9, 10, 11, 12, 13, 14, 15, 8),
    (0, 8, 15, 14, 13, 12, 11, 10, 9, 1, 2, 3, 4, 5, 6, 7),
    (0, 7, 6, 5, 4, 3, 11, 12, 13, 14, 15, 8, 9, 10, 2, 1),
    (0, 1, 2, 10, 9, 8, 15, 14, 13, 12, 11, 3, 4, 5, 6, 7),
    (0, 7, 6, 5, 13, 14, 15, 8, 9, 10, 11, 12, 4, 3, 2, 1),
    (0, 1, 2, 3, 4, 12, 11, 10, 9, 8, 15, 14, 13, 5, 6, 7),
    (0, 7, 15, 8, 9, 10, 11, 12, 13, 14, 6, 5, 4, 3, 2, 1),
    (0, 1, 2, 3, 4, 5, 6, 14, 13, 12, 11, 10, 9, 8, 15, 7),
)
"""The rings of a published log of 2 servers of 8 H100 (hosts lccn09 and lccn19), twice in its 16
channels."""

PUBLISHED_TREES = {
    5: ("6/-1/-1->5->4", {5: "6/13/-1->5->-1", 13: "6/-1/-1->5->13"}, (6, 14)),
    8: ("9/-1/-1->8->15", {0: "9/-1/-1->8->0", 8: "9/0/-1->8->-1"}, (1, 9)),
    13: ("14/-1/-1->13->12", {5: "14/-1/-1->13->5", 13: "14/5/-1->13->-1"}, (6, 14)),
    15: ("8/-1/-1->15->14", {7: "8/-1/-1->15->7", 15: "8/7/-1->15->-1"}, (0, 8)),
}
"""The same log, by rank: its place in most trees, its place in those whose servers meet there,
and the channels in which it is the last of its server, without children."""


class TestPublishedLog:
    """Rings, trees and heads of NVLS of the log of 2 servers of 8 H100 with NVLS."""

    def test_rings(self) -> None:
        assert communicator(2, nvls=True).rings == PUBLISHED_RINGS * 2

    def test_heads_of_nvls(self) -> None:
        heads = communicator(2, nvls=True).nvls_heads
        assert heads == tuple((gpu, gpu + 8) for gpu in range(8))

    @pytest.mark.parametrize("rank", PUBLISHED_TREES)
    def test_trees(self, rank: int) -> None:
        usual, others, last = PUBLISHED_TREES[rank]
        lines = log_lines(Tuner(communicator(2, nvls=True)), [])
        (text,) = (line for line in lines if f":{rank}:{rank} " in line and " Trees [" in line)
        found = re.findall(r"\[\d+\] (\S+)", text.partition("Trees ")[2])
        expected = [others.get(channel, usual) for channel in range(16)]
        for channel in last:
            expected[channel] = "-1/-1/-1" + usual[usual.index("->") :]
        assert found == expected


class TestNvls:
    def test_heads_are_logged_and_read(self) -> None:
        tuner = Tuner(communicator(2, nvls=True))
        text = "\n".join(log_lines(tuner, [(Kind.ALL_REDUCE, 1 << 30)]))
        assert "NVLS Head  7:  7 15" in text
        assert "NVLS Trees : 17/8/-1->0->-1 17/-1/-1->0->8" in text
        assert "-> Algo NVLS_TREE proto SIMPLE" in text
        theirs, found = compared(tuner, text.replace("NVLS Head  7:  7 15", "NVLS Head  7:  7 14"))
        assert theirs.heads[0] == (0, 8)
        assert found == ["NVLS head 7: log 7 14; here 7 15"]

    def test_a_variable_lets_nccl_choose_it(self) -> None:
        raw = spec({"env": {"NCCL_NVLS_ENABLE": "2"}})
        raw["workload"] = {"kind": "collectives", "ranks": 16, "operations": [{"kind": "barrier"}]}
        tuner = tuner_of(settings_of(parse_dict(raw)), range(16))
        assert tuner.choose(Kind.ALL_REDUCE, 1 << 30).algorithm == "NVLSTree"
        assert tuner.choose(Kind.ALL_GATHER, 1 << 30).algorithm == "Ring"
        inside = tuner_of(settings_of(parse_dict(raw)), range(8))
        assert inside.choose(Kind.ALL_REDUCE, 1 << 30).algorithm == "NVLS"


class TestLog:
    def test_public_lines_are_met(self) -> None:
        theirs, found = compared(Tuner(communicator(2)), PUBLIC)
        assert (len(theirs.rings), len(theirs.counts), len(theirs.choices)) == (2, 4, 1)
        assert found == []

    def test_what_is_written_is_read(self) -> None:
        tuner = Tuner(communicator(2))
        asked = [(Kind.ALL_REDUCE, 1 << power) for power in range(10, 31, 5)]
        text = "\n".join(log_lines(tuner, asked))
        found = read_log(text)
        assert len(found.rings) == 16
        assert len(found.trees) == 16 * 16
        assert len(found.choices) == len(asked)
        assert list(differences(found, read_log(text))) == []

    def test_differences_are_told(self) -> None:
        tuner = Tuner(communicator(2))
        wrong = PUBLIC.replace("16 coll", "12 coll").replace("TREE", "RING")
        _, found = compared(tuner, wrong.replace(" 0   7   6 ", " 0   6   7 "))
        assert len(found) == 3
        assert found[0] == "coll channels: log 12, here 16"

    @given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
    @settings(max_examples=50, deadline=None)
    def test_any_text_is_read(self, text: str) -> None:
        read_log(text)
        read_log("Channel 00/01 : " + text + "\nTrees [0] " + text)


class TestQueuePairs:
    """NCCL_IB_QPS_PER_CONNECTION and NCCL_IB_SPLIT_DATA_ON_QPS over RoCE."""

    @pytest.mark.parametrize(
        ("env", "expected"),
        [
            ({}, (1, True)),
            ({"NCCL_IB_QPS_PER_CONNECTION": "4"}, (4, False)),
            ({"NCCL_IB_QPS_PER_CONNECTION": 4, "NCCL_IB_SPLIT_DATA_ON_QPS": 1}, (4, True)),
        ],
    )
    def test_variables_say_how_many(self, env: dict[str, str], expected: tuple[int, bool]) -> None:
        raw = spec({"env": env}) | {"transport": {"kind": "roce"}}
        raw["fabric"] = {"kind": "rails", "server": "dgx-h100", "servers": 2, "spines": 1}
        found = parse_dict(raw)
        assert (found.between_ranks.count, found.between_ranks.splits) == expected
        assert parse_dict(found.to_dict()).between_ranks == found.between_ranks

    @pytest.mark.parametrize(
        ("transport", "said"),
        [
            ({"kind": "tcp"}, "TCP has no queue pairs"),
            ({"kind": "roce", "connections": 2}, "either it or transport.connections"),
        ],
    )
    def test_refusals(self, transport: dict[str, object], said: str) -> None:
        raw = spec({"env": {"NCCL_IB_QPS_PER_CONNECTION": "4"}}) | {"transport": transport}
        raw["fabric"] = {"kind": "rails", "server": "dgx-h100", "servers": 2, "spines": 1}
        with pytest.raises(SpecError, match=said):
            parse_dict(raw)


class TestSockets:
    """NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD over TCP."""

    @pytest.mark.parametrize(
        ("threads", "each", "count"),
        [("4", None, 4), ("4", "2", 8), (None, "4", 1), ("16", "64", 64), ("1", "1", 1)],
    )
    def test_variables_say_how_many(
        self, threads: str | None, each: str | None, count: int
    ) -> None:
        given = {"NCCL_SOCKET_NTHREADS": threads, "NCCL_NSOCKS_PERTHREAD": each}
        env = {name: value for name, value in given.items() if value is not None}
        found = parse_dict(spec({"env": env})).between_ranks
        assert found.count == count
        assert found.splits
        # src/transport/net_socket.cc: no part of a message is below MIN_CHUNKSIZE.
        assert [size for _, size in found.parts(65_537, 3)] == (
            [65_537] if count == 1 else [65_536, 1]
        )

    def test_the_log_says_so_as_nccl_does(self) -> None:
        tuner = Tuner(communicator(2, Environment({"NCCL_SOCKET_NTHREADS": "4"})))
        lines = [line.partition("NCCL INFO ")[2] for line in log_lines(tuner, [])]
        assert lines[0] == "NET/Socket: Using 4 threads and 1 sockets per thread"

    def test_queue_pairs_have_none(self) -> None:
        raw = spec({"env": {"NCCL_SOCKET_NTHREADS": "4"}}) | {"transport": {"kind": "roce"}}
        raw["fabric"] = {"kind": "rails", "server": "dgx-h100", "servers": 2, "spines": 1}
        with pytest.raises(SpecError, match="tcp beside it"):
            parse_dict(raw)


class TestJobs:
    RAW: ClassVar[dict[str, object]] = {
        "name": "jobs",
        "fabric": {"kind": "rails", "server": "dgx-h100", "servers": 2, "spines": 1},
        "transport": {"kind": "roce"},
    }

    @staticmethod
    def job(name: str, **more: object) -> dict[str, object]:
        operations = [{"kind": "all_reduce", "size": "1MiB"}]
        workload = {"kind": "collectives", "ranks": 8, "operations": operations}
        return {"name": name, "workload": workload, "collectives": {"backend": "nccl"} | more}

    def test_each_has_its_own_servers(self) -> None:
        across = self.job("across") | {"placement": {n: f"h{2 * n + 1}" for n in range(8)}}
        found = parse_dict(self.RAW | {"jobs": [across, self.job("within")]})
        places = {name: settings_of(part).servers for name, part in found.parts.items()}
        across_places, within_places = places["across"], places["within"]
        assert across_places is not None and within_places is not None
        assert across_places.places == tuple((n // 4, 2 * (n % 4) + 1) for n in range(8))
        # A policy takes hosts that no job before has.
        assert within_places.places == tuple((n // 4, 2 * (n % 4)) for n in range(8))

    def test_all_have_as_many_connections(self) -> None:
        more = self.job("more", env={"NCCL_IB_QPS_PER_CONNECTION": "2"})
        with pytest.raises(SpecError, match="as many connections of two ranks"):
            parse_dict(self.RAW | {"jobs": [self.job("one"), more]})
        other = self.job("other", env={"NCCL_IB_QPS_PER_CONNECTION": "2"})
        both = parse_dict(self.RAW | {"jobs": [more, other]})
        found = {each.between_ranks for each in (both, *both.parts.values())}
        assert {each.count for each in found} == {2}

    def test_mistakes_are_in_the_job(self) -> None:
        wrong = self.job("wrong", env={"NCCL_ALGO": "CollNetChain"})
        with pytest.raises(SpecError, match=r"jobs\[0\]\.collectives\.env: found NCCL_ALGO="):
            parse_dict(self.RAW | {"jobs": [wrong]})

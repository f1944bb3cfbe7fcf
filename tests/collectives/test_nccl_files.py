"""NCCL's topology and graph files: servers and choices that they give, and refusals by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectives.algorithms.base import DoesNotFit
from collectives.kinds import Kind
from collectives.nccl.communicator import Communicator, graphs_of
from collectives.nccl.environment import Environment
from collectives.nccl.graph_file import read_graphs
from collectives.nccl.of_run import tuner_of
from collectives.nccl.server import PathType
from collectives.nccl.topology_file import read_topology, spec_of_topology
from collectives.settings import settings_of
from groundwire.commands.nccl.choices import choices
from tests.collectives.nccl_files import graphs, topology
from tests.collectives.test_nccl import communicator, server
from topologies.spec.spec import Spec, load_spec, parse_dict


def written(tmp_path: Path, text: str, name: str = "topo.xml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


class TestTopology:
    def test_a_dgx_h100_is_the_preset(self, tmp_path: Path) -> None:
        found = read_topology(written(tmp_path, topology()))
        expected = server()
        assert (found.model, found.nvlink_gbytes) == (expected.model, expected.nvlink_gbytes)
        assert (found.nics, found.cpu, found.path_type) == (expected.nics, "intel", PathType.PIX)
        assert [found.socket(gpu) for gpu in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
        ranks = tuple(tuple(range(8 * number, 8 * number + 8)) for number in range(2))
        assert Communicator((found, found), ranks).rings == communicator(2).rings

    def test_two_gpus_a_switch_and_four_processors(self, tmp_path: Path) -> None:
        text = topology(per_switch=2, cpus=4, sm=80, links=12, mbps=200_000, speed="16.0")
        found = read_topology(written(tmp_path, text.replace("GenuineIntel", "AuthenticAMD")))
        assert (found.model.name, found.model.pci_gbytes, found.cpu) == ("a100", 24.0, "amd")
        assert [found.pci_switch(gpu) for gpu in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
        assert [found.socket(gpu) for gpu in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
        assert [nic.gpu for nic in found.nics] == list(range(8))
        assert {nic.gbytes for nic in found.nics} == {25.0}

    def test_a_plugins_latency(self, tmp_path: Path) -> None:
        text = topology().replace('speed="400000"', 'speed="400000" latency="75.000000"')
        assert read_topology(written(tmp_path, text)).net_latency_us == 75.0

    def test_nics_are_those_beside_gpus(self, tmp_path: Path) -> None:
        """NICs are numbered the other way round in a published file of an H100 server (IBM Cloud,
        cluster network profile)."""
        text = topology(mbps=200_000, reversed_nics=True)
        found = read_topology(written(tmp_path, text))
        assert [nic.gpu for nic in found.nics] == list(range(7, -1, -1))

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('sm="90"', 'sm="61"', r"system/cpu\[0\]/pci\[0\]/pci\[0\]/gpu\[0\]: sm=61"),
            ('sm="90"', "", r"gpu\[0\]: sm=nothing"),
            ('count="18"', 'count="many"', r"nvlink\[0\]: count=many"),
            ('tclass="0x068000"', 'tclass="0x030200"', r"tclass=0x030200"),
            ('speed="400000"', 'speed="1" latency="long"', r"net\[0\]: latency=long"),
            ('speed="400000"', 'speed="fast"', r"net\[0\]: speed=fast"),
            ('vendor="GenuineIntel"', 'vendor="Other"', r"cpu\[0\]: vendor=Other"),
            ('<system version="1">', '<system version="2">', r"system: version=2"),
            ("</system>", "", "topo.xml"),
            ("<system", "<!DOCTYPE a><system", "a document type"),
        ],
    )
    def test_refusals_name_file_node_and_attribute(
        self, tmp_path: Path, old: str, new: str, said: str
    ) -> None:
        path = written(tmp_path, topology().replace(old, new, 1))
        with pytest.raises(DoesNotFit, match=said) as error:
            read_topology(path)
        assert error.value.key == "env.NCCL_TOPO_FILE"
        assert path in str(error.value)

    @given(cut=st.integers(0, 4000), put=st.text(max_size=30), length=st.integers(0, 200))
    @settings(
        max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    def test_any_text_is_read_or_refused(
        self, tmp_path: Path, cut: int, put: str, length: int
    ) -> None:
        text = topology()
        path = tmp_path / f"{abs(hash((cut, put, length)))}.xml"
        path.write_text(text[:cut] + put + text[cut + length :], encoding="utf-8", errors="replace")
        for reads in (read_topology, read_graphs):
            try:
                reads(str(path))
            except DoesNotFit as error:
                assert str(path) in str(error)

    def test_a_spec_of_its_servers(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = Path(written(tmp_path, topology()))
        assert choices(path, servers=2) == 0
        found = parse_dict(yaml.safe_load(capsys.readouterr().out))
        assert found.to_dict() == parse_dict(spec_of_topology(str(path), 2)).to_dict()
        rates = {link.link_class: link.rate_bps for link in found.plan.fabric.links}
        assert (rates["scale-up"], rates["nic"]) == (2_966_400_000_000, 400_000_000_000)
        assert tuner_of(settings_of(found), range(16)).communicator.rings == communicator(2).rings
        path.write_text("<graphs/>")
        read_topology.cache_clear()
        assert choices(path, servers=2) == 2
        assert "whose root is system" in capsys.readouterr().err


def graph_spec(tmp_path: Path, text: str, servers: int = 2) -> Spec:
    (tmp_path / "graph.xml").write_text(text)
    path = tmp_path / "spec.yaml"
    path.write_text(
        f"fabric: {{kind: rails, server: dgx-h100, servers: {servers}, spines: 1}}\n"
        f"workload: {{kind: collectives, ranks: {8 * servers}, operations: [{{kind: barrier}}]}}\n"
        "collectives: {backend: nccl, env: {NCCL_GRAPH_FILE: graph.xml}}\n"
    )
    read_graphs.cache_clear()
    return load_spec(path)


class TestGraphs:
    def test_dumped_graphs_give_the_same_choices(self, tmp_path: Path) -> None:
        searched = graphs_of(server(), True, 2, False)
        found = graph_spec(tmp_path, graphs([(0, searched.ring), (1, searched.tree)]))
        comm = tuner_of(settings_of(found), range(16)).communicator
        assert comm.rings == communicator(2).rings
        assert comm.trees == communicator(2).trees

    def test_given_graphs_go_before_the_search(self, tmp_path: Path) -> None:
        ring = graphs_of(server(), True, 2, False).ring.copy()
        ring.intra = [[0, 2, 4, 6, 1, 3, 5, 7]] * 2
        ring.inter = [[0, 7]] * 2
        found = graph_spec(tmp_path, graphs([(0, ring)]))
        tuner = tuner_of(settings_of(found), range(16))
        assert tuner.communicator.rings[0][:8] == (0, 2, 4, 6, 1, 3, 5, 7)
        # 2 searched, doubled twice; NVLS has 16, and others as many.
        assert tuner.choose(Kind.ALL_GATHER, 1 << 28).channels == 16

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('nchannels="8"', 'nchannels="9"', r"graphs/graph\[0\]: nchannels=9"),
            ('pattern="4"', 'pattern="9"', r"graph\[0\]: pattern=9"),
            ('typeintra="NVL"', 'typeintra="FAST"', r"typeintra=FAST"),
            ('<gpu dev="0x1" rank="1"/>', '<gpu dev="0x9" rank="1"/>', "GPUs"),
            ('<gpu dev="0x1" rank="1"/>', "", "GPUs"),
            ('<net dev="0x1"/>', '<net dev="0x1f"/>', "NICs"),
        ],
    )
    def test_refusals(self, tmp_path: Path, old: str, new: str, said: str) -> None:
        text = graphs([(0, graphs_of(server(), True, 2, False).ring)])
        assert old in text
        with pytest.raises(ValueError, match=said):
            graph_spec(tmp_path, text.replace(old, new, 1))

    def test_variables_are_files(self) -> None:
        Environment({"NCCL_TOPO_FILE": "a.xml", "NCCL_GRAPH_FILE": "b.xml"})

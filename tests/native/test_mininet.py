"""Mininet's API and CLI on our fabrics, in the native kernel."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from mininet.link import TCLink, TCULink
from mininet.node import CPULimitedHost, Host
from mininet.topo import Topo
from mininet.topolib import TreeTopo

from emulator.mininet.cli import run_commands
from emulator.mininet.net import FabricIsFixed, FabricMininet
from emulator.mininet.options import UnsupportedOption
from emulator.mininet.topology import TopoError, fabric_of_topo, load_topo
from emulator.ports.arrangement import RateOnlyArrangement
from groundwire.commands.run import KernelChoice
from groundwire.commands.shell import ShellRefused, shell
from tests.native.native_fabrics import fat_tree, flat
from tests.native.own_pace import believed
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.spec.spec import parse_dict

needs_ping = pytest.mark.skipif(not shutil.which("ping"), reason="needs ping (iputils-ping)")
needs_iperf = pytest.mark.skipif(not shutil.which("iperf"), reason="needs iperf (version 2)")


def _rates(_fabric: Fabric) -> RateOnlyArrangement:
    return RateOnlyArrangement()


@pytest.fixture
def net() -> Iterator[FabricMininet]:
    made = FabricMininet(fabric=fat_tree(), arrangement=_rates)
    made.start()
    yield made
    made.stop()


def test_shells_start_only_when_used(net: FabricMininet) -> None:
    assert [node.name for node in net.values() if node.started] == []
    assert net["h3"].cmd("echo here").strip() == "here"
    assert [node.name for node in net.values() if node.started] == ["h3"]


def test_a_nodes_shell_and_popen_are_in_its_namespace(net: FabricMininet) -> None:
    assert "h0-eth0" in net["h0"].cmd("ip -br link")
    out, _, code = net["agg0-0"].pexec("ip", "-br", "link")
    assert code == 0
    assert "agg0-0-eth3" in out


def test_a_node_is_a_host_with_a_name(net: FabricMininet) -> None:
    assert net["h3"].cmd("hostname").strip() == "h3"
    address = str(net.fabric.by_name["h3"].address)
    assert net["h3"].cmd("getent ahostsv4 h3").split()[0] == address
    assert net["h3"].popen("hostname").communicate()[0].strip() == b"h3"
    assert socket.gethostname() != "h3"


def test_a_shell_is_there_when_its_process_is_asked_for(net: FabricMininet) -> None:
    """Mininet's multiping.py reads `pid` and registers `stdout` before any command."""
    assert net["h1"].pid is not None and Path(f"/proc/{net['h1'].pid}").exists()
    assert net["h2"].stdout.fileno() > 2
    assert {node.name for node in net.values() if node.started} == {"h1", "h2"}


def test_commands_that_fail_are_counted(net: FabricMininet) -> None:
    assert run_commands(net, ["h0 true", "h0 echo fine"]) == 0
    assert run_commands(net, ["h0 false", "h1 sh -c 'exit 3'", "h0 true"]) == 2


def test_links_options_are_honoured_and_others_refused() -> None:
    link = partial(TCLink, bw=10, delay="5ms")
    net = FabricMininet(topo=TreeTopo(depth=1, fanout=2), link=link, build=False)
    assert {(each.rate_bps, each.delay_ns) for each in net.fabric.links} == {(10**7, 5_000_000)}
    same = {"host": Host, "ipBase": "10.0.0.0/8", "autoSetMacs": True, "controller": None}
    assert FabricMininet(topo=TreeTopo(depth=1, fanout=2), build=False, **same).fabric.links
    for option, why in (
        ({"host": CPULimitedHost}, "host=CPULimitedHost: hosts are the fabric's"),
        ({"ipBase": "192.168.0.0/16"}, "addresses are the fabric's own"),
        ({"link": TCULink}, "expected Link, TCLink"),
        ({"nosuch": 1}, "option 'nosuch': expected one of"),
    ):
        with pytest.raises(UnsupportedOption, match=why):
            FabricMininet(topo=TreeTopo(depth=1, fanout=2), build=False, **option)
    with pytest.raises(UnsupportedOption, match="links are the fabric's own"):
        FabricMininet(fabric=net.fabric, build=False, link=link)
    assert FabricMininet(fabric=net.fabric, build=False, link=TCLink).fabric is net.fabric


def test_the_api_knows_nodes_links_and_addresses(net: FabricMininet) -> None:
    assert (len(net.hosts), len(net.switches), len(net.links)) == (16, 20, 48)
    assert net["h0"].IP() == str(net.fabric.by_name["h0"].address)
    assert net["h0"].MAC() == net.fabric.links[0].a.mac
    assert [(a.name, b.name) for a, b in net["h0"].connectionsTo(net["edge0-0"])] == [
        ("h0-eth0", "edge0-0-eth0")
    ]


@needs_ping
def test_pingall_also_with_a_link_down(net: FabricMininet) -> None:
    few = [net[name] for name in ("h0", "h1", "h7", "h15")]
    assert net.ping(few) == 0
    net.configLinkStatus("edge0-0", "agg0-0", "down")
    link = net.linksBetween(net["edge0-0"], net["agg0-0"])[0]
    assert link.status() == "(DOWN DOWN)"
    assert net.ping(few) == 0
    net.configLinkStatus("edge0-0", "agg0-0", "up")
    assert link.status() == "(OK OK)"
    assert net.ping(few) == 0


def test_a_live_fabric_does_not_take_new_nodes(net: FabricMininet) -> None:
    with pytest.raises(FabricIsFixed):
        net.addHost("late")


@needs_iperf
def test_iperf_measures_the_link() -> None:
    goodput = 50 * (1500 - 52) / (1500 + 38)

    def as_expected(measured: list[str]) -> bool:
        return 0.75 * goodput <= float(measured[0].split()[0]) <= 1.02 * goodput

    net = FabricMininet(fabric=flat(2, rate="50Mbps"), arrangement=_rates)
    try:
        tcp = believed(net.network, lambda: net.iperf(seconds=1), as_expected)
        udp = net.iperf(l4Type="UDP", udpBw="5M", seconds=1)
    finally:
        net.stop()
    assert as_expected(tcp), tcp
    assert float(tcp[1].split()[0]) > 0
    assert udp[0] == "5M"
    assert float(udp[1].split()[0]) == pytest.approx(5.24, rel=0.1)  # iperf's M is 2^20


_CUSTOM = """
from mininet.topo import Topo

class Ring(Topo):
    def build(self, n=3):
        switches = [self.addSwitch(f"s{i}") for i in range(n)]
        for i, switch in enumerate(switches):
            self.addLink(switch, switches[(i + 1) % n], bw=100)
            self.addLink(self.addHost(f"h{i}"), switch, bw=10, max_queue_size=100)

topos = {"ring": Ring}
"""


@needs_ping
def test_shell_runs_commands_on_a_custom_topology(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    custom = tmp_path / "ring.py"
    custom.write_text(_CUSTOM)
    commands = ["nodes", "link s0 s1 down", "pingall", "h0 echo from the host"]
    code = shell(
        topo="ring,4", custom=custom, command=commands, kernel=KernelChoice.native, spec=None
    )
    out = capfd.readouterr().out
    assert code == 0
    assert "0% dropped (12/12 received)" in out
    assert "from the host" in out


def test_shell_fails_when_a_command_does(capfd: pytest.CaptureFixture[str]) -> None:
    code = shell(
        topo="single,2", command=["nosuch"], kernel=KernelChoice.native, spec=None, custom=None
    )
    assert code == 1
    assert "nosuch" in capfd.readouterr().out


def test_shell_wants_one_source() -> None:
    with pytest.raises(ShellRefused, match="either a SPEC, or --topo"):
        shell(spec=None, topo=None, custom=None)


def test_a_topos_links_become_the_fabrics() -> None:
    topo = Topo()
    topo.addHost("a")
    topo.addSwitch("s")
    topo.addHost("b")
    topo.addLink("a", "s", bw=40_000, delay="500ns", max_queue_size=10)
    topo.addLink("b", "s", bw=2.5, delay=3)
    fabric = fabric_of_topo(topo)
    found = {
        (link.a.node, link.b.node): (link.rate_bps, link.delay_ns, link.a.queue.buffer_bytes)
        for link in fabric.links
    }
    assert found[("a", "s")] == (40 * 10**9, 500, 15_140)
    assert found[("b", "s")][:2] == (2_500_000, 3_000)  # tc takes a bare number as microseconds
    assert [host.name for host in fabric.hosts] == ["a", "b"]


def test_a_topology_becomes_a_section_of_a_spec(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    custom = tmp_path / "ring.py"
    custom.write_text(_CUSTOM)
    assert shell(topo="ring,5", custom=custom, print_fabric=True, spec=None) == 0
    section = yaml.safe_load(capsys.readouterr().out)["fabric"]
    workload = {"kind": "collectives", "ranks": 5, "operations": [{"kind": "barrier"}]}
    spec = parse_dict({"name": "ring", "fabric": section, "workload": workload})
    assert build_fabric(spec.fabric) == fabric_of_topo(load_topo("ring,5", str(custom)))


def test_a_link_may_say_its_own_class() -> None:
    topo = Topo()
    topo.addHost("a")
    topo.addHost("b")
    topo.addLink("a", "b", cls=TCLink, bw=20)
    topo.addLink("a", "b", cls=partial(TCLink, bw=30, delay="2ms"))
    links = fabric_of_topo(topo, {"bw": 10}).links
    assert [(link.rate_bps, link.delay_ns) for link in links] == [
        (20_000_000, 0),
        (30_000_000, 2_000_000),
    ]
    topo.addLink("a", "b", cls=TCULink)
    with pytest.raises(TopoError, match=r"link a - b: option link=TCULink: expected Link, TCLink"):
        fabric_of_topo(topo)


def test_a_stock_topology_by_name() -> None:
    assert len(fabric_of_topo(load_topo("tree,depth=2,fanout=3")).hosts) == 9
    assert len(fabric_of_topo(TreeTopo(depth=1, fanout=5)).hosts) == 5


def test_a_link_option_that_does_nothing_is_taken() -> None:
    topo = Topo()
    topo.addHost("a")
    topo.addHost("b")
    plain = {"loss": 0, "jitter": None, "enable_ecn": False}
    topo.addLink("a", "b", bw=10, use_htb=True, use_tbf=False, **plain)
    (link,) = fabric_of_topo(topo).links
    assert link.rate_bps == 10_000_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": 10}, r"option loss=10 is not supported: expected 0 \(loss and jitter are faults"),
        ({"enable_ecn": True}, "option enable_ecn=True is not supported: expected False"),
        ({"jitter": "1ms"}, "option jitter='1ms' is not supported"),
        ({"intfName2": "r0-eth1"}, "option 'intfName2' is not supported: expected bw"),
        ({"bw": "fast"}, "bw 'fast': expected a number of Mb/s"),
        ({"delay": "soon"}, "delay 'soon': expected a time"),
        ({"max_queue_size": 0}, "max_queue_size 0: expected a number of packets"),
    ],
)
def test_a_link_option_that_means_nothing_here_is_refused(
    options: dict[str, object], words: str
) -> None:
    topo = Topo()
    topo.addHost("a")
    topo.addHost("b")
    topo.addLink("a", "b", **options)
    with pytest.raises(TopoError, match=words):
        fabric_of_topo(topo)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topos = 3", "expected a dictionary `topos`"),
        ("def broken(:", "SyntaxError"),
        ("topos = {'x': 1 / 0}", "ZeroDivisionError"),
    ],
)
def test_a_bad_topology_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(TopoError, match=rf"bad\.py: .*{words}"):
        load_topo("x", str(path))


def test_a_missing_topology_file_and_name() -> None:
    with pytest.raises(TopoError, match=r"nosuch\.py: No such file"):
        load_topo("x", "nosuch.py")
    with pytest.raises(TopoError, match=r"no topology 'nosuch': expected one of .*tree"):
        load_topo("nosuch")

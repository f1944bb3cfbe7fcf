"""Stock Mininet, as PyPI has it, with TCLinks of netem and HTB, in virtual time."""

import re
import shutil
import sys

import pytest

from tests.virtual.conftest import Guest

SCRIPT = """
from mininet.link import TCLink
from mininet.net import Mininet
from mininet.topo import Topo

class Routed(Topo):
    def build(self):
        router = self.addHost("r", ip="10.0.1.1/24")
        for i in (1, 2):
            host = self.addHost(f"h{i}", ip=f"10.0.{i}.2/24", defaultRoute=f"via 10.0.{i}.1")
            self.addLink(host, router, cls=TCLink, bw=100, delay="1ms",
                         intfName2=f"r-eth{i}", params2={"ip": f"10.0.{i}.1/24"})

net = Mininet(topo=Routed(), controller=None, switch=None)
net.start()
net["r"].cmd("sysctl -w net.ipv4.ip_forward=1")
net["h1"].cmd("ping -c 1 10.0.2.2")  # resolves addresses
print("lost", net.pingAll())
print(net["h1"].cmd("ping -c 3 10.0.2.2"))
if IPERF:
    hosts = [net["h1"], net["h2"]]
    print("udp", net.iperf(hosts, l4Type="UDP", udpBw="50M", seconds=2))
    print("tcp", net.iperf(hosts, fmt="k -i 1", seconds=2))
net.stop()
"""


@pytest.mark.skipif(shutil.which("mnexec") is None, reason="needs mnexec (Debian: mininet)")
def test_a_tclink_topology_keeps_time(guest: Guest) -> None:
    iperf = shutil.which("iperf") is not None
    ended = guest(sys.executable, "-c", f"IPERF = {iperf}\n{SCRIPT}", memory_bytes=10**9)
    said = "\n".join(ended.lines)
    assert "lost 0.0" in said, (said, ended.errors)
    # Two links of 1 ms each way; a frame of 98 bytes takes 7.84 us at 100 Mb/s, but netem's rate
    # is HTB's here, which lets the first packet of an idle link leave at once.
    times = [float(found) for found in re.findall(r"time=([\d.]+) ms", said)]
    assert times == [pytest.approx(4.0, abs=0.02)] * 3
    if not iperf:
        pytest.skip("pingall is right; the command iperf (version 2) is not installed")
    # iperf's M is 2**20 bits here.
    (udp,) = re.findall(r"udp \['50M', '([\d.]+) Mbits/sec'", said)
    assert float(udp) == pytest.approx(50 * 2**20 / 1e6, rel=0.01)
    # The bytes that the server has received. Mininet waits for two of its reports, of which iperf
    # 2.1 prints one at the end, in any kernel: hence one each second (-i).
    (tcp,) = re.findall(r"tcp \['([\d.]+) Kbits/sec'", said)
    # HTB counts a frame with its Ethernet header, which is 14 bytes.
    assert 0.9 * 95.6e3 <= float(tcp) <= 100e3 * 1448 / 1514

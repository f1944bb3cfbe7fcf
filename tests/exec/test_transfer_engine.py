"""Mooncake's transfer engine, unchanged: keys and values go from a prefill to a decode host, by TCP
and by RDMA. `make programs ONLY=mooncake` makes what it needs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from testing.foreign_programs import programs_folder
from tests.exec.programs import execute

LAYERS, LAYER_BYTES = 4, 1 << 20
RATE_BPS = 25e9

_FABRIC = """
fabric: {{kind: flat, hosts: 2, link: {{rate: 25Gbps, delay: 1us, mtu: 9000}}}}
transport: {{kind: {transport}}}
predict: []
"""
_TRANSFER = """
import ctypes, json, os, socket, sys, time
protocol, layers, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rank = os.environ["RANK"]
if protocol == "rdma":
    # Mooncake finds devices by NUMA nodes, of which the guest's kernel tells nothing.
    own = socket.inet_aton(socket.gethostbyname(f"h{rank}")).hex()
    place = "/sys/class/infiniband"
    mine = [
        device for device in os.listdir(place)
        if open(f"{place}/{device}/ports/1/gids/1").read().replace(":", "").strip().endswith(own)
    ]
    with open(f"topology{rank}.json", "w") as file:
        json.dump({"cpu:0": [mine, []]}, file)
    os.environ["MC_CUSTOM_TOPO_JSON"] = f"topology{rank}.json"
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize(f"h{rank}", "P2PHANDSHAKE", protocol, "") == 0
memory = ctypes.create_string_buffer(layers * size)
address = ctypes.addressof(memory)
assert engine.register_memory(address, layers * size) == 0
if rank == "0":
    with open("where.new", "w") as file:
        file.write(f"h0:{engine.get_rpc_port()} {address}")
    os.rename("where.new", "where")
    while not os.path.exists("done"):
        time.sleep(0.001)
    print("received", memory.raw == b"".join(bytes([65 + n]) * size for n in range(layers)))
else:
    while not os.path.exists("where"):
        time.sleep(0.001)
    target, there = open("where").read().split()
    for n in range(layers):
        ctypes.memset(address + n * size, 65 + n, size)
        begun = time.monotonic_ns()
        at = n * size
        assert engine.transfer_sync_write(target, address + at, int(there) + at, size) == 0
        print("layer", time.monotonic_ns() - begun)
    open("done", "w").close()
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.long
@pytest.mark.parametrize(("transport", "protocol"), [("tcp", "tcp"), ("roce", "rdma")])
def test_keys_and_values_arrive_at_the_rate_of_the_link(
    tmp_path: Path, transport: str, protocol: str
) -> None:
    python = programs_folder() / "mooncake" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is missing: make programs ONLY=mooncake")
    (tmp_path / "fabric.yaml").write_text(_FABRIC.format(transport=transport))
    (tmp_path / "transfer.py").write_text(_TRANSFER)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "-n", "2", "--",
        str(python), "transfer.py", protocol, str(LAYERS), str(LAYER_BYTES), timeout_s=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    assert "received True" in (tmp_path / "run/ranks/000.out").read_text()
    said = (tmp_path / "run/ranks/001.out").read_text()
    times_ns = [int(found) for found in re.findall(r"layer (\d+)", said)]
    assert len(times_ns) == LAYERS
    wire_ns = LAYER_BYTES * 8e9 / RATE_BPS
    # The first transfer connects. Headers take 1% over TCP; RoCE's packets have 1,024 bytes.
    assert all(wire_ns < each < 1.12 * wire_ns for each in times_ns[1:]), times_ns
    assert "rdma" not in protocol or "installTransport, type=rdma" in _errors(tmp_path)


def _errors(tmp_path: Path) -> str:
    return (tmp_path / "run/ranks/001.err").read_text()

"""Servers, brokers and benchmarks of others, unchanged: what they say is right. `make programs
ONLY="servers debian"` makes what they need, and Debian's OpenMPI runs those of MPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exec.foreign_program import ForeignProgram, check

_ETCD = """
bin=$1/debian/usr/bin; me=$(getent hosts h$RANK | cut -d" " -f1); export ETCDCTL_API=3
all=http://h0:2379,http://h1:2379,http://h2:2379
$bin/etcd --name h$RANK --data-dir /tmp/etcd \\
    --initial-cluster h0=http://h0:2380,h1=http://h1:2380,h2=http://h2:2380 \\
    --initial-advertise-peer-urls http://h$RANK:2380 --listen-peer-urls http://$me:2380 \\
    --advertise-client-urls http://h$RANK:2379 --listen-client-urls http://$me:2379 \\
    2> etcd$RANK.log &
if [ $RANK = 0 ]; then
    until $bin/etcdctl --endpoints $all --command-timeout 1s put key value; do sleep 0.2; done
    touch put
fi
until [ -e put ]; do sleep 0.1; done
$bin/etcdctl --endpoints http://h$RANK:2379 get key
[ $RANK = 0 ] && $bin/etcdctl --endpoints $all endpoint status > status
sleep 1
[ $RANK = 0 ] && echo leaders $(grep -c "true, false" status)
sleep 1; kill %1
"""
_MEMCACHED = """
import os, socket, subprocess, sys, time
rank = os.environ["RANK"]
if rank == "0":
    server = subprocess.Popen([sys.argv[1] + "/debian/usr/bin/memcached", "-u", "root", "-U", "0"])
    time.sleep(3)
    server.terminate()
    sys.exit()
time.sleep(1)
link = socket.create_connection(("h0", 11211))
lines = link.makefile("rb")
link.sendall(b"set of%s 0 0 300000\\r\\n" % rank.encode() + rank.encode() * 300_000 + b"\\r\\n")
assert lines.readline() == b"STORED\\r\\n"
link.sendall(b"get of%s\\r\\n" % rank.encode())
lines.readline()
print(lines.read(300_000) == rank.encode() * 300_000)
"""
_MOSQUITTO = """
export LD_LIBRARY_PATH=$1/debian/usr/lib/x86_64-linux-gnu
if [ $RANK = 0 ]; then
    printf "listener 1883 0.0.0.0\\nallow_anonymous true\\nuser root\\n" > /tmp/mosquitto.conf
    $1/debian/usr/sbin/mosquitto -c /tmp/mosquitto.conf > server.log 2>&1 &
    sleep 4; kill %1; exit 0
fi
sleep 1
if [ $RANK = 1 ]; then
    $1/debian/usr/bin/mosquitto_sub -h h0 -t gradients -C 3
else
    sleep 1
    for i in 1 2 3; do $1/debian/usr/bin/mosquitto_pub -h h0 -q 1 -t gradients -m "step $i"; done
fi
"""
_SOCAT = """
if [ $RANK = 0 ]; then
    head -c 2000000 /dev/zero | tr '\\0' 'x' | $1/debian/usr/bin/socat - TCP-LISTEN:7000
else
    sleep 0.5; $1/debian/usr/bin/socat TCP:h0:7000 - | md5sum
fi
"""
_RPYC = """
import os, threading, time
import rpyc
from rpyc.utils.server import ThreadedServer
class Sums(rpyc.Service):
    def exposed_sum(self, many):
        return sum(many)
if os.environ["RANK"] == "0":
    server = ThreadedServer(Sums(), port=18861)
    threading.Thread(target=server.start, daemon=True).start()
    time.sleep(3)
else:
    time.sleep(1)
    print(rpyc.connect("h0", 18861).root.sum(tuple(range(1000))))
"""
_PYRO = """
import os, threading, time
import Pyro5.api
@Pyro5.api.expose
class Store:
    def __init__(self):
        self.kept = {}
    def put(self, key, value):
        self.kept[key] = value
        return len(self.kept)
if os.environ["RANK"] == "0":
    daemon = Pyro5.api.Daemon(host="h0", port=9999)
    daemon.register(Store(), "store")
    threading.Thread(target=daemon.requestLoop, daemon=True).start()
    time.sleep(3)
else:
    time.sleep(int(os.environ["RANK"]))
    print(Pyro5.api.Proxy("PYRO:store@h0:9999").put(os.environ["RANK"], "x" * 1000))
"""
_AIOHTTP = """
import asyncio, os
import aiohttp
from aiohttp import web
async def serve():
    async def sized(request):
        return web.Response(body=b"x" * int(request.match_info["size"]))
    app = web.Application()
    app.router.add_get("/{size}", sized)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 8080).start()
    await asyncio.sleep(3)
async def ask():
    await asyncio.sleep(1)
    async with aiohttp.ClientSession() as session:
        async def size_of(size):
            async with session.get(f"http://h0:8080/{size}") as answer:
                return len(await answer.read())
        print(sum(await asyncio.gather(*(size_of(n * 1000) for n in range(20)))))
asyncio.run(serve() if os.environ["RANK"] == "0" else ask())
"""
_WEBSOCKETS = """
import asyncio, os
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
async def echo(link):
    async for message in link:
        await link.send(message[::-1])
async def main():
    if os.environ["RANK"] == "0":
        async with serve(echo, "0.0.0.0", 8765):
            await asyncio.sleep(3)
        return
    await asyncio.sleep(1)
    async with connect("ws://h0:8765") as link:
        got = []
        for number in range(10):
            await link.send(f"message {number}")
            got.append(await link.recv())
        print(got[-1])
asyncio.run(main())
"""
_IPYPARALLEL = """
export IPYTHONDIR=$PWD/ipython PATH=$1/servers/bin:$PATH
at=$(getent hosts h$RANK | cut -d" " -f1)
if [ $RANK = 0 ]; then
    python -m ipyparallel.controller --ip=$at --location=$at > controller.log 2>&1 &
    python client.py; status=$?; touch done; kill %1; exit $status
fi
until [ -e ipython/profile_default/security/ipcontroller-engine.json ]; do sleep 0.2; done
python -m ipyparallel.engine > engine$RANK.log 2>&1 &
until [ -e done ]; do sleep 0.2; done
kill %1
"""
_IPYPARALLEL_CLIENT = """
import os, time
import ipyparallel
while not os.path.exists("ipython/profile_default/security/ipcontroller-client.json"):
    time.sleep(0.2)
client = ipyparallel.Client(timeout=60)
client.wait_for_engines(3, timeout=60)
print(sum(client[:].map_sync(lambda x: x * x, range(100))))
"""
_FUTURES = """
from mpi4py.futures import MPIPoolExecutor
if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        print(sum(pool.map(pow, range(100), [2] * 100)))
"""
_HALO = """
#include <mpi.h>
#include <stdio.h>
#define BYTES 40000
int main(int argc, char **argv)
{
    static char out[2][BYTES], in[2][BYTES];
    int rank, size, right = 0;
    MPI_Request requests[4];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int above = (rank + 1) % size, below = (rank + size - 1) % size;
    for (int step = 0; step < 4; step++) {
        out[0][0] = out[1][0] = rank + step;
        MPI_Irecv(in[0], BYTES, MPI_CHAR, below, 0, MPI_COMM_WORLD, requests);
        MPI_Irecv(in[1], BYTES, MPI_CHAR, above, 1, MPI_COMM_WORLD, requests + 1);
        MPI_Isend(out[0], BYTES, MPI_CHAR, above, 0, MPI_COMM_WORLD, requests + 2);
        MPI_Isend(out[1], BYTES, MPI_CHAR, below, 1, MPI_COMM_WORLD, requests + 3);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        right += in[0][0] == below + step && in[1][0] == above + step;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    printf("%d right\\n", right);
    MPI_Finalize();
    return 0;
}
"""
_PYTHON = ("FOLDER/servers/bin/python", "program.py")
_PROGRAMS: dict[str, ForeignProgram] = {
    "etcd": ForeignProgram(
        "debian/usr/bin/etcd", 3, ("bash", "run.sh", "FOLDER"), {"run.sh": _ETCD},
        {0: "leaders 1", 1: "key\nvalue", 2: "key\nvalue"},
    ),
    "memcached": ForeignProgram(
        "debian/usr/bin/memcached", 3, ("python", "client.py", "FOLDER"),
        {"client.py": _MEMCACHED}, {1: "True", 2: "True"},
        options=("--env", "LD_LIBRARY_PATH=FOLDER/debian/usr/lib/x86_64-linux-gnu"),
    ),
    "mosquitto": ForeignProgram(
        "debian/usr/sbin/mosquitto", 3, ("bash", "run.sh", "FOLDER"), {"run.sh": _MOSQUITTO},
        {1: "step 1\nstep 2\nstep 3"},
    ),
    "socat": ForeignProgram(
        "debian/usr/bin/socat", 2, ("bash", "run.sh", "FOLDER"), {"run.sh": _SOCAT},
        {1: "939ee55a36872cb4222e09cced62a7b5"},
    ),
    "rpyc": ForeignProgram(
        "servers/bin/python", 2, _PYTHON, {"program.py": _RPYC}, {1: "499500"}
    ),
    "pyro": ForeignProgram(
        "servers/bin/python", 3, _PYTHON, {"program.py": _PYRO}, {1: "1", 2: "2"}
    ),
    "aiohttp": ForeignProgram(
        "servers/bin/python", 3, _PYTHON, {"program.py": _AIOHTTP}, {1: "190000", 2: "190000"}
    ),
    "websockets": ForeignProgram(
        "servers/bin/python", 2, _PYTHON, {"program.py": _WEBSOCKETS}, {1: "9 egassem"}
    ),
    "ipyparallel": ForeignProgram(
        "servers/bin/python", 4, ("bash", "run.sh", "FOLDER"),
        {"run.sh": _IPYPARALLEL, "client.py": _IPYPARALLEL_CLIENT}, {0: "328350"},
    ),
    "mpi4py.futures": ForeignProgram(
        "openmpi/bin/python", 4,
        ("mpirun", "FOLDER/openmpi/bin/python", "-m", "mpi4py.futures", "program.py"),
        {"program.py": _FUTURES}, {0: "328350"}, ("exchange", "send_recv"),
    ),
    "halo exchange": ForeignProgram(
        "mpirun", 4, ("mpirun", "./program"), {"program.c": _HALO}, {0: "4 right"},
        ("exchange", "barrier"), before=("mpicc", "program.c", "-o", "program"),
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_program_of_others_runs_and_says_what_is_right(name: str, tmp_path: Path) -> None:
    check(_PROGRAMS[name], tmp_path)

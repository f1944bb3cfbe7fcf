"""Programs that are none of our packages: they run unchanged, say what is right, and their
connections have no rows unless the documentation says so.

`GROUNDWIRE_PROGRAMS` names a folder with an environment for each (docs/exec.md#programs-of-others
has how to make it), which is not below /tmp: that is the guest's own. A program whose environment
is not there is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.exec.programs import execute

_FABRIC = """
fabric: {kind: flat, hosts: 4, link: {rate: 10Gbps, delay: 5us}}
predict: [packet]
"""


@dataclass(frozen=True)
class _Program:
    """`files` are what it has in its folder, `command` what runs, in which FOLDER stands for the
    environment's; `says` are what its ranks print, `kinds` its rows. `needs` is a file below the
    folder, or a program of the machine."""

    needs: str
    ranks: int
    command: tuple[str, ...]
    files: dict[str, str]
    says: dict[int, str]
    kinds: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


_GRPC = """
import os, time
from concurrent import futures
import grpc
class Cut(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda body, context: body[:10])
if os.environ["RANK"] == "0":
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Cut(),))
    server.add_insecure_port("0.0.0.0:50051")
    server.start()
    time.sleep(2)
    server.stop(0)
else:
    time.sleep(0.5)
    call = grpc.insecure_channel("h0:50051").unary_unary("/a/b")
    call(b"first")
    begun_ns = time.monotonic_ns()
    answer = call(b"x" * 1_000_000)
    print(len(answer), 800 < (time.monotonic_ns() - begun_ns) / 1e3 < 900)
"""
_ZEROMQ = """
import os, socket, time
import zmq
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
context = zmq.Context()
comes, goes = context.socket(zmq.PULL), context.socket(zmq.PUSH)
comes.bind("tcp://*:5555")
goes.connect(f"tcp://{socket.gethostbyname(f'h{(rank + 1) % world}')}:5555")
if rank == 0:
    begun_ns = time.monotonic_ns()
    goes.send(b"x" * 1_000_000)
    got = comes.recv()
    print(len(got), 3_200 < (time.monotonic_ns() - begun_ns) / 1e3 < 3_500)
else:
    goes.send(comes.recv())
context.destroy(linger=1000)
"""
_XGBOOST = """
import os
import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
at = os.environ["MASTER_ADDR"]
if rank == 0:
    tracker = RabitTracker(host_ip=at, n_workers=world, port=9091)
    tracker.start()
with collective.CommunicatorContext(
    dmlc_communicator="rabit", dmlc_tracker_uri=at, dmlc_tracker_port=9091, dmlc_task_id=str(rank)
):
    drawn = np.random.default_rng(collective.get_rank()).normal(size=(500, 8))
    data = xgboost.DMatrix(drawn, (drawn[:, 0] > 0).astype(int))
    settings = {"objective": "binary:logistic", "nthread": 1, "tree_method": "hist"}
    trained = xgboost.train(settings, data, 3)
    print(trained.num_boosted_rounds(), collective.get_world_size())
if rank == 0:
    tracker.wait_for()
"""
_LIGHTGBM = """
import os, socket
import lightgbm
import numpy as np
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
machines = ",".join(f"{socket.gethostbyname(f'h{i}')}:12400" for i in range(world))
drawn = np.random.default_rng(rank).normal(size=(500, 8))
settings = {
    "objective": "binary", "tree_learner": "data", "num_machines": world, "machines": machines,
    "local_listen_port": 12400, "num_threads": 1, "verbose": -1, "pre_partition": True,
}
data = lightgbm.Dataset(drawn, (drawn[:, 0] > 0).astype(int))
print(lightgbm.train(settings, data, 3).num_trees())
"""
_FLOWER = """
import os, time
import flwr
import numpy as np
at = os.environ["MASTER_ADDR"] + ":8080"
if os.environ["RANK"] == "0":
    strategy = flwr.server.strategy.FedAvg(
        min_fit_clients=3, min_available_clients=3, min_evaluate_clients=3
    )
    config = flwr.server.ServerConfig(num_rounds=2)
    done = flwr.server.start_server(server_address=at, config=config, strategy=strategy)
    print(done.losses_distributed)
else:
    class Client(flwr.client.NumPyClient):
        def get_parameters(self, config):
            return [np.zeros(1000, np.float32)]
        def fit(self, parameters, config):
            return [each + 1 for each in parameters], 10, {}
        def evaluate(self, parameters, config):
            return float(parameters[0].mean()), 10, {}
    time.sleep(1)
    flwr.client.start_client(server_address=at, client=Client().to_client())
"""
_NATS = """
import asyncio, os
import nats
async def main():
    link = await nats.connect(f"nats://{os.environ['MASTER_ADDR']}:4222")
    got = asyncio.Future()
    async def take(message):
        if not got.done():
            got.set_result(len(message.data))
    await link.subscribe("all", cb=take)
    await link.flush()
    await asyncio.sleep(0.5)
    if os.environ["RANK"] == "1":
        await link.publish("all", b"x" * 500_000)
    print(await asyncio.wait_for(got, 5))
    await link.close()
asyncio.run(main())
"""
_NATS_SHELL = """
if [ $RANK = 0 ]; then
    $1/debian/usr/sbin/nats-server -a 0.0.0.0 -p 4222 > server.log 2>&1 &
    server=$!; sleep 4; kill $server; exit 0
fi
sleep 1; $1/messages/bin/python client.py
"""
_REDIS = """
import os
import redis
rank = os.environ["RANK"]
link = redis.Redis(os.environ["MASTER_ADDR"], 6379)
link.set("of" + rank, b"x" * 300_000)
print(len(link.get("of" + rank)))
"""
_REDIS_SHELL = """
export LD_LIBRARY_PATH=$1/debian/usr/lib/x86_64-linux-gnu
if [ $RANK = 0 ]; then
    $1/debian/usr/bin/redis-server --bind 0.0.0.0 --protected-mode no --save "" > server.log 2>&1 &
    server=$!; sleep 4; kill $server; exit 0
fi
sleep 1; $1/messages/bin/python client.py
"""
_DASK = """
import os
from dask.distributed import Client
link = Client(f"tcp://{os.environ['MASTER_ADDR']}:8786")
link.wait_for_workers(3)
print(sum(link.gather(link.map(lambda x: x * x, range(100)))))
link.shutdown()
"""
_DASK_SHELL = """
bin=$1/messages/bin
if [ $RANK = 0 ]; then
    $bin/dask scheduler --host $MASTER_ADDR --port 8786 --no-dashboard > scheduler.log 2>&1 &
    scheduler=$!; sleep 2; $bin/python client.py; kill $scheduler; exit 0
fi
sleep 1
timeout 60 $bin/dask worker tcp://$MASTER_ADDR:8786 \\
    --nthreads 1 --no-dashboard --no-nanny > $RANK.log 2>&1
exit 0
"""
_MPI4PY = """
import numpy as np
from mpi4py import MPI
world = MPI.COMM_WORLD
total = np.zeros(65536)
world.Allreduce(np.full(65536, float(world.rank)), total)
print(world.rank, total[0])
"""
_TENSORFLOW = """
import json, os
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.environ["TF_CONFIG"] = json.dumps({
    "cluster": {"worker": [f"h{i}:12345" for i in range(world)]},
    "task": {"type": "worker", "index": rank},
})
import tensorflow as tf
about = tf.distribute.experimental
options = about.CommunicationOptions(implementation=about.CommunicationImplementation.RING)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
with strategy.scope():
    weight = tf.Variable(tf.zeros((256, 256)))
@tf.function
def step():
    def replica():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, weight + 1.0)
    return strategy.run(replica)
for _ in range(3):
    value = step()
print(float(tf.reduce_mean(value)))
"""
_ACCELERATE = """
import torch
from accelerate import Accelerator
runner = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(64, 64))
model, optimizer, batches = runner.prepare(
    model, optimizer, torch.utils.data.DataLoader(data, batch_size=4)
)
for _, (batch,) in zip(range(3), batches):
    loss = model(batch).square().mean()
    runner.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
print(len(runner.gather(loss.detach().reshape(1))))
runner.end_training()
"""
_FABRIC_SCRIPT = """
import lightning, torch
fabric = lightning.Fabric(accelerator="cpu", strategy="ddp", devices=1, num_nodes=2)
fabric.launch()
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(2):
    optimizer.zero_grad()
    fabric.backward(model(torch.randn(8, 64)).square().mean())
    optimizer.step()
print(fabric.world_size, float(fabric.all_reduce(torch.ones(1), reduce_op="sum")))
"""

_PROGRAMS: dict[str, _Program] = {
    "grpc": _Program(
        "messages/bin/python", 2, ("FOLDER/messages/bin/python", "program.py"),
        {"program.py": _GRPC}, {1: "10 True"},
    ),
    "zeromq": _Program(
        "messages/bin/python", 4, ("FOLDER/messages/bin/python", "program.py"),
        {"program.py": _ZEROMQ}, {0: "1000000 True"},
    ),
    "xgboost": _Program(
        "messages/bin/python", 4, ("FOLDER/messages/bin/python", "program.py"),
        {"program.py": _XGBOOST}, dict.fromkeys(range(4), "3 4"),
    ),
    "lightgbm": _Program(
        "messages/bin/python", 4, ("FOLDER/messages/bin/python", "program.py"),
        {"program.py": _LIGHTGBM}, dict.fromkeys(range(4), "3"),
    ),
    "flower": _Program(
        "messages/bin/python", 4, ("FOLDER/messages/bin/python", "program.py"),
        {"program.py": _FLOWER}, {0: "[(1, 1.0), (2, 2.0)]"},
    ),
    "nats": _Program(
        "debian/usr/sbin/nats-server", 3, ("sh", "run.sh", "FOLDER"),
        {"client.py": _NATS, "run.sh": _NATS_SHELL}, {1: "500000", 2: "500000"},
    ),
    "redis": _Program(
        "debian/usr/bin/redis-server", 3, ("sh", "run.sh", "FOLDER"),
        {"client.py": _REDIS, "run.sh": _REDIS_SHELL}, {1: "300000", 2: "300000"},
    ),
    "dask": _Program(
        "messages/bin/dask", 4, ("sh", "run.sh", "FOLDER"),
        {"client.py": _DASK, "run.sh": _DASK_SHELL}, {0: "328350"},
    ),
    "mpi4py on OpenMPI": _Program(
        "openmpi/bin/python", 4, ("mpirun", "FOLDER/openmpi/bin/python", "program.py"),
        {"program.py": _MPI4PY}, {0: "3 6.0"}, ("all_reduce",),
    ),
    "mpi4py on MPICH": _Program(
        "mpi/bin/mpiexec", 4,
        ("FOLDER/mpi/bin/mpiexec", "-n", "4", "FOLDER/mpi/bin/python", "program.py"),
        {"program.py": _MPI4PY}, {0: "3 6.0"},
    ),
    "iperf3": _Program(
        "iperf3", 2, ("sh", "run.sh"),
        {"run.sh": "[ $RANK = 0 ] && exec iperf3 -s -1\nsleep 0.5; exec iperf3 -c h0 -t 1"},
        {1: "9.90 Gbits/sec"},
    ),
    "tensorflow": _Program(
        "tensorflow/bin/python", 4, ("FOLDER/tensorflow/bin/python", "program.py"),
        {"program.py": _TENSORFLOW}, dict.fromkeys(range(4), "4.0"),
    ),
    "accelerate": _Program(
        "torch/bin/accelerate", 2,
        ("FOLDER/torch/bin/python", "-m", "torch.distributed.run", "program.py"),
        {"program.py": _ACCELERATE}, {0: "2"}, ("all_gather", "all_reduce", "broadcast"),
    ),
    "lightning fabric": _Program(
        "torch/bin/fabric", 2, ("FOLDER/torch/bin/python", "program.py"),
        {"program.py": _FABRIC_SCRIPT}, {0: "2 2.0"}, ("all_reduce",),
    ),
}  # fmt: skip


def _folder(needs: str) -> Path:
    """Where environments are. Skips where that of this program is missing."""
    if "/" not in needs:
        if shutil.which(needs) is None:
            pytest.skip(f"{needs} is not installed here (docs/exec.md#programs-of-others)")
        return Path("/")
    named = os.environ.get("GROUNDWIRE_PROGRAMS")
    if named is None or not (Path(named) / needs).exists():
        pytest.skip(f"GROUNDWIRE_PROGRAMS/{needs} is missing (docs/exec.md#programs-of-others)")
    return Path(named)


@pytest.mark.long
@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_program_of_others_runs_and_says_what_is_right(name: str, tmp_path: Path) -> None:
    program = _PROGRAMS[name]
    folder = _folder(program.needs)
    (tmp_path / "fabric.yaml").write_text(_FABRIC)
    for file, text in program.files.items():
        (tmp_path / file).write_text(text)
    command = [word.replace("FOLDER", str(folder)) for word in program.command]
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--memory", "3GB",
        "-n", str(program.ranks), *program.options, "--", *command, timeout_s=1_500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    for rank, text in program.says.items():
        assert text in (tmp_path / f"run/ranks/{rank:03d}.out").read_text()
    found = {row["kind"] for row in result["collectives"]}
    assert set(program.kinds) <= found if program.kinds else not found

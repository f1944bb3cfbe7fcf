"""Programs that are none of our packages: they run unchanged, say what is right, and their
connections have no rows unless the documentation says so.

`make programs` makes their environments; a program whose environment is not there is skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exec.foreign_program import ForeignProgram, check

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

_RAY = """
import ray
ray.init(address="auto", log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < 3:
    time.sleep(0.5)
@ray.remote(num_cpus=1)
def square(x):
    time.sleep(0.5)
    return x * x, socket.gethostname()
spread = square.options(scheduling_strategy="SPREAD")
found = ray.get([spread.remote(x) for x in range(20)])
print(sum(value for value, _ in found), len({host for _, host in found}))
"""
_RAY_SHELL = """
bin=$1/ray/bin own="--node-ip-address=$(hostname -i) --num-cpus=1 --disable-usage-stats"
if [ $RANK = 0 ]; then
    $bin/ray start --head $own --port=6379 --include-dashboard=false > 0.log 2>&1
    $bin/python client.py; status=$?
    touch done; $bin/ray stop --force > stop.log 2>&1; exit $status
fi
sleep 5; $bin/ray start --address=$MASTER_ADDR:6379 $own > $RANK.log 2>&1
until [ -e done ]; do sleep 1; done
exit 0
"""
_NVFLARE = """
import os
import numpy as np
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.recipe import ProdEnv
recipe = NumpyFedAvgRecipe(
    name="small", model=np.zeros((100, 100)).tolist(), min_clients=2, num_rounds=2,
    train_script="train.py",
)
kit = os.path.abspath("made/small/prod_00/admin@us.org")
place = recipe.execute(ProdEnv(kit, username="admin@us.org", login_timeout=30)).get_result()
trained = np.load(place + "/workspace/models/server.npy")
print("trained", trained.shape, trained.mean())
"""
_NVFLARE_PROJECT = """
api_version: 3
name: small
participants:
  - {name: h0, type: server, org: us, fed_learn_port: 8002, admin_port: 8003}
  - {name: h1, type: client, org: us}
  - {name: h2, type: client, org: us}
  - {name: admin@us.org, type: admin, org: us, role: project_admin}
builders:
  - {path: nvflare.lighter.impl.workspace.WorkspaceBuilder}
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {config_folder: config, scheme: grpc}
  - {path: nvflare.lighter.impl.cert.CertBuilder}
  - {path: nvflare.lighter.impl.signature.SignatureBuilder}
"""
_NVFLARE_TRAIN = """
import nvflare.client as flare
flare.init()
while flare.is_running():
    model = flare.receive()
    grown = {name: value + 1 for name, value in model.params.items()}
    flare.send(flare.FLModel(params=grown, metrics={"accuracy": 1.0}))
"""
_NVFLARE_SHELL = """
export PATH=$1/nvflare/bin:$PATH
kits=made/small/prod_00
if [ $RANK = 0 ]; then
    cp -L trained.py train.py  # what is submitted has to lie in its folder, and not behind a link
    nvflare provision -p project.yml -w made > provision.log 2>&1 && touch provisioned
    bash $kits/h0/startup/sub_start.sh --once > server.log 2>&1 &
    sleep 8
    python job.py; status=$?
    touch finished; exit $status
fi
until [ -e provisioned ]; do sleep 0.5; done
sleep 3
bash $kits/h$RANK/startup/sub_start.sh --once > client$RANK.log 2>&1 &
until [ -e finished ]; do sleep 0.5; done
"""
_DEEPSPEED = """
import deepspeed, torch
import torch.distributed as dist
deepspeed.init_distributed("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
config = {
    "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2},
    "zero_allow_untested_optimizer": True,
}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
losses = []
for step in range(3):
    loss = engine(torch.ones(4, 64) * (rank + 1)).square().mean()
    losses.append(float(loss))
    engine.backward(loss)
    engine.step()
print(ranks, losses == sorted(losses, reverse=True))
dist.destroy_process_group()
"""
_PETSC = """
import sys
import petsc4py
petsc4py.init(sys.argv)
from petsc4py import PETSc
size = 4000
matrix = PETSc.Mat().createAIJ((size, size), nnz=3, comm=PETSc.COMM_WORLD)
for row in range(*matrix.getOwnershipRange()):
    for column, value in ((row - 1, -1.0), (row, 2.1), (row + 1, -1.0)):
        if 0 <= column < size:
            matrix[row, column] = value
matrix.assemble()
right, found = matrix.createVecs()
found.set(1.0)
matrix.mult(found, right)
found.set(0.0)
solver = PETSc.KSP().create(PETSc.COMM_WORLD)
solver.setOperators(matrix)
solver.setType("cg")
solver.getPC().setType("jacobi")
solver.setTolerances(rtol=1e-10)
solver.solve(right, found)
PETSc.Sys.Print(PETSc.COMM_WORLD.size, solver.getIterationNumber() > 5, round(found.sum()))
"""
_OPENSHMEM = """
#include <shmem.h>
#include <stdio.h>
static long from = -1;
int main(void) {
    shmem_init();
    int me = shmem_my_pe(), all = shmem_n_pes();
    long *sum = shmem_calloc(1, sizeof *sum);
    shmem_barrier_all();
    shmem_long_p(&from, me, (me + 1) % all);
    shmem_long_atomic_add(sum, me + 1, 0);
    shmem_barrier_all();
    printf("pe %d of %d: from %ld, sum %ld\\n", me, all, from, shmem_long_g(sum, 0));
    shmem_finalize();
    return 0;
}
"""
_JAX_MPI = """
import atexit, os
atexit.register(os._exit, 0)  # jaxlib frees its communicators after it has finalized MPI
import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
jax.config.update("jax_cpu_collectives_implementation", "mpi")
jax.config.update("jax_cpu_enable_async_dispatch", False)  # MPI is called by one thread
rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:12345", size, rank)
mesh = jax.make_mesh((size,), ("x",))
ones = jax.make_array_from_callback(
    (size * 256, 256), NamedSharding(mesh, P("x")),
    lambda index: np.ones((size * 256, 256), np.float32)[index],
)
mapped = lambda function, outputs: jax.jit(jax.shard_map(
    function, mesh=mesh, in_specs=P("x"), out_specs=outputs, check_vma=False
))
for function, outputs in (
    (lambda a: jax.lax.psum(a, "x"), P()),
    (lambda a: jax.lax.all_gather(a, "x", tiled=True), P()),
    (lambda a: jax.lax.psum_scatter(a, "x", scatter_dimension=0, tiled=True), P("x")),
):
    got = mapped(function, outputs)(ones).block_until_ready()
    print(rank, float(np.asarray(got.addressable_data(0)).sum()), flush=True)
"""

_PETSC4PY = "/usr/lib/petscdir/petsc3.18/x86_64-linux-gnu-real/lib/python3/dist-packages"
"""Debian's, which its Python finds by a link that other Pythons in PATH hide."""
_PROGRAMS: dict[str, ForeignProgram] = {
    "grpc": ForeignProgram(
        "messages/bin/python", 2, ("FOLDER/messages/bin/python", "program.py"),
        {"program.py": _GRPC}, {1: "10 True"},
    ),
    "zeromq": ForeignProgram(
        "messages/bin/python", 4, ("FOLDER/messages/bin/python", "program.py"),
        {"program.py": _ZEROMQ}, {0: "1000000 True"},
    ),
    "xgboost": ForeignProgram(
        "messages/bin/python", 4, ("FOLDER/messages/bin/python", "program.py"),
        {"program.py": _XGBOOST}, dict.fromkeys(range(4), "3 4"),
    ),
    "lightgbm": ForeignProgram(
        "messages/bin/python", 4, ("FOLDER/messages/bin/python", "program.py"),
        {"program.py": _LIGHTGBM}, dict.fromkeys(range(4), "3"),
    ),
    "flower": ForeignProgram(
        "messages/bin/python", 4, ("FOLDER/messages/bin/python", "program.py"),
        {"program.py": _FLOWER}, {0: "[(1, 1.0), (2, 2.0)]"},
    ),
    "nats": ForeignProgram(
        "debian/usr/sbin/nats-server", 3, ("sh", "run.sh", "FOLDER"),
        {"client.py": _NATS, "run.sh": _NATS_SHELL}, {1: "500000", 2: "500000"},
    ),
    "redis": ForeignProgram(
        "debian/usr/bin/redis-server", 3, ("sh", "run.sh", "FOLDER"),
        {"client.py": _REDIS, "run.sh": _REDIS_SHELL}, {1: "300000", 2: "300000"},
    ),
    "dask": ForeignProgram(
        "messages/bin/dask", 4, ("sh", "run.sh", "FOLDER"),
        {"client.py": _DASK, "run.sh": _DASK_SHELL}, {0: "328350"},
    ),
    "mpi4py on OpenMPI": ForeignProgram(
        "openmpi/bin/python", 4, ("mpirun", "FOLDER/openmpi/bin/python", "program.py"),
        {"program.py": _MPI4PY}, {0: "3 6.0"}, ("all_reduce",),
    ),
    "mpi4py on MPICH": ForeignProgram(
        "mpi/bin/mpiexec", 4,
        ("FOLDER/mpi/bin/mpiexec", "-n", "4", "FOLDER/mpi/bin/python", "program.py"),
        {"program.py": _MPI4PY}, {0: "3 6.0"},
    ),
    "iperf3": ForeignProgram(
        "iperf3", 2, ("sh", "run.sh"),
        {"run.sh": "[ $RANK = 0 ] && exec iperf3 -s -1\nsleep 0.5; exec iperf3 -c h0 -t 1"},
        {1: "9.90 Gbits/sec"},
    ),
    "tensorflow": ForeignProgram(
        "tensorflow/bin/python", 4, ("FOLDER/tensorflow/bin/python", "program.py"),
        {"program.py": _TENSORFLOW}, dict.fromkeys(range(4), "4.0"),
    ),
    "accelerate": ForeignProgram(
        "torch/bin/accelerate", 2,
        ("FOLDER/torch/bin/python", "-m", "torch.distributed.run", "program.py"),
        {"program.py": _ACCELERATE}, {0: "2"}, ("all_gather", "all_reduce", "broadcast"),
    ),
    "lightning fabric": ForeignProgram(
        "torch/bin/fabric", 2, ("FOLDER/torch/bin/python", "program.py"),
        {"program.py": _FABRIC_SCRIPT}, {0: "2 2.0"}, ("all_reduce",),
    ),
    "ray": ForeignProgram(
        "ray/bin/ray", 3, ("sh", "run.sh", "FOLDER"),
        {"client.py": "import socket, time" + _RAY, "run.sh": _RAY_SHELL}, {0: "2470 3"},
    ),
    "nvflare": ForeignProgram(
        "nvflare/bin/nvflare", 3, ("bash", "run.sh", "FOLDER"),
        {
            "job.py": _NVFLARE, "trained.py": _NVFLARE_TRAIN, "project.yml": _NVFLARE_PROJECT,
            "run.sh": _NVFLARE_SHELL,
        },
        {0: "trained (100, 100) 2.0"},
    ),
    "deepspeed": ForeignProgram(
        "deepspeed/bin/deepspeed", 2,
        ("FOLDER/deepspeed/bin/python", "-m", "torch.distributed.run", "program.py"),
        {"program.py": _DEEPSPEED}, {0: "2 True"}, ("all_reduce", "all_gather", "broadcast"),
        ("--env", "DS_ACCELERATOR=cpu"),
        (
            "env", "DS_ACCELERATOR=cpu", "FOLDER/deepspeed/bin/python", "-c",
            "from deepspeed.comm.torch import build_shm_op; build_shm_op()",
        ),
    ),
    "petsc": ForeignProgram(
        _PETSC4PY, 4, ("mpirun", "-x", "PYTHONPATH", "/usr/bin/python3", "program.py"),
        {"program.py": _PETSC}, {0: "4 True 4000"}, ("all_reduce", "send_recv"),
        ("--env", f"PYTHONPATH={_PETSC4PY}"),
    ),
    "openshmem": ForeignProgram(
        "oshrun", 4, ("oshrun", "./program"), {"program.c": _OPENSHMEM},
        {0: "pe 2 of 4: from 1, sum 10"}, ("barrier", "all_gather"),
        before=("oshcc", "-no-pie", "program.c", "-o", "program"),
    ),
    "jax over mpi": ForeignProgram(
        "mpiwrapper/lib/libmpiwrapper.so", 4,
        ("mpirun", "-x", "MPITRAMPOLINE_LIB", "FOLDER/jax/bin/python", "program.py"),
        {"program.py": _JAX_MPI}, {0: "3 262144.0"},
        ("all_reduce", "all_gather", "reduce_scatter"),
        ("--env", "MPITRAMPOLINE_LIB=FOLDER/mpiwrapper/lib/libmpiwrapper.so"),
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_program_of_others_runs_and_says_what_is_right(name: str, tmp_path: Path) -> None:
    check(_PROGRAMS[name], tmp_path)

"""JAX's operations between processes, three times each, then a step of FSDP three times.

Each begins at a multiple of 10 ms. A line says what it took by the process's own clock, and whether
the sum of what came out is right.
"""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_cpu_collectives_implementation", "gloo")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:12345", size, rank)
mesh = jax.make_mesh((size,), ("x",))
ring = [(i, (i + 1) % size) for i in range(size)]
rows, width = size * 256, 256


def filled(shape, spec, value=1.0):
    return jax.make_array_from_callback(
        shape, NamedSharding(mesh, spec), lambda index: np.full(shape, value, np.float32)[index]
    )


def mapped(function, inputs, outputs):
    return jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
    )


def fsdp(weights, inputs):
    """A layer whose weights are divided by rows: they are gathered, their gradients scattered."""

    def loss(part):
        whole = jax.lax.all_gather(part, "x", tiled=True)
        return jnp.mean((inputs @ whole) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return jax.lax.psum(value, "x"), weights - 0.01 * gradient


sharded, whole = filled((rows, width), P("x")), filled((rows, width), P())
layer = filled((1024, 256), P("x"), 0.01)
batch = filled((size * 8, 1024), P("x"), 0.1)
shard = rows * width / size
operations = {
    "psum": (mapped(lambda a: jax.lax.psum(a, "x"), P("x"), P()), (sharded,), size * shard),
    "all_gather": (
        mapped(lambda a: jax.lax.all_gather(a, "x", tiled=True), P("x"), P()),
        (sharded,),
        size * shard,
    ),
    "all_to_all": (
        mapped(lambda a: jax.lax.all_to_all(a, "x", 0, 0, tiled=True), P("x"), P("x")),
        (sharded,),
        shard,
    ),
    "permute": (
        mapped(lambda a: jax.lax.ppermute(a, "x", ring), P("x"), P("x")),
        (sharded,),
        shard,
    ),
    "reduce_scatter": (
        mapped(
            lambda a: jax.lax.psum_scatter(a, "x", scatter_dimension=0, tiled=True), P(), P("x")
        ),
        (whole,),
        size * shard,
    ),
    "fsdp": (mapped(fsdp, (P("x"), P("x")), (P(), P("x"))), (layer, batch), None),
}
for name, (function, arrays, right) in operations.items():
    for number in range(3):
        time.sleep(0.01 - time.monotonic() % 0.01)
        begun_ns = time.monotonic_ns()
        with jax.profiler.StepTraceAnnotation(name, step_num=number):
            result = jax.block_until_ready(function(*arrays))
        took_ns = time.monotonic_ns() - begun_ns
        last = result if right is not None else result[1]
        total = float(np.asarray(last.addressable_data(0), np.float64).sum())
        if (
            right is None
        ):  # mean over 256 of 1.024 ** 2, whose gradient is 2 / 256 / 8 * 8 * 0.1 * ...
            gradient = size * 2 * 1.024 * 0.1 / 256
            right_here = (0.01 - 0.01 * gradient) * layer.shape[0] * width / size
        else:
            right_here = right
        correct = abs(total - right_here) <= 1e-5 * right_here
        print(name, number, took_ns, "right" if correct else f"wrong: {total} {right_here}")

"""JAX's processes over Gloo: values, a row for each operation, and the times of the program's own
clock. jax is none of our packages: `make programs ONLY=jax` makes its environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testing.foreign_programs import programs_folder
from tests.exec.programs import execute

_PROGRAM = """
import os, time

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_cpu_collectives_implementation", "gloo")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:12345", size, rank)
mesh = jax.make_mesh((size,), ("x",))
ring = [(i, (i + 1) % size) for i in range(size)]


def ones(spec):
    return jax.make_array_from_callback(
        (size * 256, 256), NamedSharding(mesh, spec),
        lambda index: np.ones((size * 256, 256), np.float32)[index],
    )


def mapped(function, inputs, outputs):
    return jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
    )


sharded, whole = ones(P("x")), ones(P())
operations = {
    "all_reduce": (mapped(lambda a: jax.lax.psum(a, "x"), P("x"), P()), sharded),
    "all_gather": (mapped(lambda a: jax.lax.all_gather(a, "x", tiled=True), P("x"), P()), sharded),
    "all_to_all": (
        mapped(lambda a: jax.lax.all_to_all(a, "x", 0, 0, tiled=True), P("x"), P("x")), sharded
    ),
    "exchange": (mapped(lambda a: jax.lax.ppermute(a, "x", ring), P("x"), P("x")), sharded),
    "reduce_scatter": (
        mapped(
            lambda a: jax.lax.psum_scatter(a, "x", scatter_dimension=0, tiled=True), P(), P("x")
        ),
        whole,
    ),
}
for name, (function, array) in operations.items():
    for number in range(3):
        time.sleep(0.01 - time.monotonic() % 0.01)
        begun_ns = time.monotonic_ns()
        result = function(array).block_until_ready()
        took_ns = time.monotonic_ns() - begun_ns
        print(name, number, took_ns, float(np.asarray(result.addressable_data(0)).sum()))
"""
_FABRIC = """
fabric: {kind: flat, hosts: 4, link: {rate: 10Gbps, delay: 5us, mtu: 9000}}
predict: [packet]
"""
_SUMS = {
    "all_reduce": 4 * 65_536.0,
    "all_gather": 4 * 65_536.0,
    "all_to_all": 65_536.0,
    "exchange": 65_536.0,
    "reduce_scatter": 4 * 65_536.0,
}
_BYTES = {"all_gather": 4 << 18, "reduce_scatter": 4 << 18}


@pytest.mark.long
def test_operations_of_jax_take_their_time_and_have_rows(tmp_path: Path) -> None:
    python = programs_folder() / "jax/bin/python"
    if not python.exists():
        pytest.skip(f"{python} is missing: make programs ONLY=jax")
    (tmp_path / "program.py").write_text(_PROGRAM)
    (tmp_path / "fabric.yaml").write_text(_FABRIC)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run",
        "--env", "XLA_FLAGS=--xla_dump_to=xla", "--", str(python), "program.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run/result.json").read_text())
    rows = result["collectives"]
    assert [row["kind"] for row in rows] == [kind for kind in _SUMS for _ in range(3)]
    assert all(row["size_bytes"] == _BYTES.get(row["kind"], 1 << 18) for row in rows)
    assert all(row["phase"].startswith("jit(") for row in rows)
    said = {
        rank: [
            line.split()
            for line in (tmp_path / f"run/ranks/{rank:03d}.out").read_text().splitlines()
            if line.split()[0] in _SUMS
        ]
        for rank in range(4)
    }
    for number, row in enumerate(rows):
        kind, _, _, total = said[0][number]
        assert (kind, float(total)) == (row["kind"], _SUMS[kind])
        longest_ns = max(int(said[rank][number][2]) for rank in said)
        if number:  # the first makes the group's connections
            assert row["duration_ns"] == pytest.approx(longest_ns, rel=0.01)
        assert abs(row["predicted"]["packet"]["error"]) < 0.05

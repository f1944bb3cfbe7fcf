"""torch's backend "groundwire": scripts that know nothing of it, over localhost and on a fabric."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections import Counter
from importlib.metadata import entry_points
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from analysis.decode.gloo.wire_format import Prefix
from analysis.decode.ledger import Purpose
from analysis.decode.run_capture import load_capture
from analysis.metrics.flow import flows_of
from analysis.runs.collectives import collectives_of
from analysis.runs.run import Run, load_run
from collectives.algorithms import algorithm
from collectives.chunking import Chunking, cut
from collectives.kinds import Kind, Shape
from tests.exec.programs import execute
from tests.session.command import ROOT
from workloads.execution.transports.interface import TRANSPORT_VARIABLE, place_variable
from workloads.execution.verbs.place import RocePlace
from workloads.torch_backend.configuration import (
    VARIABLE,
    ConfigurationError,
    place_of,
    read,
)

HERE = Path(__file__).parent
TREE = "{all_reduce: {algorithm: double-binary-tree, chunks: 2}, in_flight: 2, order: lifo}"
EVERYTHING = """
collectives:
  all_reduce: {algorithm: double-binary-tree, chunks: 2}
  broadcast: {algorithm: tree}
  reduce: {algorithm: tree}
  all_gather: {algorithm: ring}
  reduce_scatter: {algorithm: direct}
  all_to_all: {algorithm: bruck, priority: 1}
  in_flight: 2
  order: priority
"""
GRADIENTS_BYTES = 4 * (32 * 64 + 64 + 64 + 1)
"""The DDP script's, a step."""
AGREEMENT_BYTES = 8
Messages = Counter[tuple[int, int, int]]
"""How many messages have a source, a destination and a size."""
# The import that registers the backend where the package's metadata are older than its entry point.
REGISTERED = "import workloads.torch_backend, runpy, sys; sys.argv = sys.argv[1:]; "
REGISTERED += "runpy.run_path(sys.argv[0], run_name='__main__')"


def outputs(script: str, ranks: int, *arguments: str, collectives: str = "") -> list[str]:
    """The output of each of some processes. Fails unless all of them end well."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        VARIABLE: collectives,
    }
    command = [sys.executable, "-c", REGISTERED, str(HERE / script), *arguments]
    processes = [
        subprocess.Popen(
            command,
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    found = [process.communicate(timeout=600) for process in processes]
    for process, (_, errors) in zip(processes, found, strict=True):
        assert process.returncode == 0, errors
    return [output for output, _ in found]


def total(output: str) -> float:
    """The sum of parameters that a rank of the DDP script tells."""
    name, _, value = output.split()
    assert name == "parameters"
    return float(value)


def test_an_ordinary_ddp_script_trains_as_one_process_does() -> None:
    """Over two trees, two chunks at a time, the last posted first."""
    (alone,) = outputs("ddp_script.py", 1, "gloo")
    for output in outputs("ddp_script.py", 4, "groundwire", collectives=TREE):
        assert total(output) == pytest.approx(total(alone), rel=1e-5)


def test_a_process_that_ends_at_once_lets_its_last_collective_be_told() -> None:
    """The callback still computes in the collective's thread when the script is at its end."""
    found = outputs("ending_script.py", 2, collectives="{all_reduce: {algorithm: ring}}")
    assert found == ["told\n"] * 2


def test_every_call_gives_what_torch_says_or_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "collectives.yaml").write_text(EVERYTHING)
    file = str(tmp_path / "collectives.yaml")
    found = outputs("calls_script.py", 3, collectives=file)
    assert found == [f"calls {rank} right\n" for rank in range(3)]


def test_torch_registers_the_backend_by_itself() -> None:
    if not entry_points(group="torch.backends", name="groundwire"):
        pytest.skip("the installed package's metadata are older than its entry point")
    asked = "import torch.distributed as d; print(d.is_backend_available('groundwire'))"
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


def messages_of(run: Run) -> Messages:
    """The payload of point-to-point messages, less the numbers by which ranks agree on an order."""
    capture = load_capture(run)
    assert capture is not None
    rank_of = {log.address: log.rank for log in run.ranks}
    ledger, found = capture.attribution.ledger, Messages()
    for row, size_bytes in enumerate(ledger.column("data_bytes").tolist()):
        of_programs = ledger.purpose[row] == Purpose.DATA and ledger.prefix[row] == Prefix.USER
        if not (ledger.primary[row] and of_programs and size_bytes > AGREEMENT_BYTES):
            continue
        opened = capture.attribution.connections[ledger.connection[row]].connection.forward
        ends = [rank_of[str(IPv4Address(e.address))] for e in (opened.source, opened.destination)]
        source, destination = ends[::-1] if ledger.direction[row] else ends
        found[source, destination, size_bytes] += 1
    return found


def messages_by(name: str) -> Messages:
    """The messages of the DDP script's three steps for their one bucket, in two chunks."""
    planned = cut(
        Shape(Kind.ALL_REDUCE, GRADIENTS_BYTES, 4, 4), algorithm(name), Chunking(chunks=2)
    )
    once = Messages((m.source, m.destination, m.size_bytes) for m in planned.numbered_messages())
    return Messages({message: 3 * count for message, count in once.items()})


def test_a_ddp_script_for_gloo_runs_over_a_tree_as_the_spec_says(tmp_path: Path) -> None:
    """And over nothing else: each message of its gradients is one of the double binary tree's."""
    (tmp_path / "fabric.yaml").write_text(
        "fabric: {kind: flat, hosts: 4, link: {rate: 10Gbps, delay: 1us, mtu: 9000}}\n"
        f"collectives: {{backend: programs, {TREE[1:]}\n"
        "capture: {points: [hosts]}\npredict: []\n"
    )
    (tmp_path / "train.py").write_text((HERE / "ddp_script.py").read_text())
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run",
        "--", "python", "train.py", "gloo",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [(tmp_path / "run" / "ranks" / f"{rank:03d}.out").read_text() for rank in range(4)]
    assert len({total(output) for output in found}) == 1
    run = load_run(tmp_path / "run")
    known = collectives_of(run)
    assert [(c.kind, c.size_bytes, c.algorithm) for c in known] == 3 * [
        ("all_reduce", GRADIENTS_BYTES, "double-binary-tree")
    ]
    assert all(c.schedule.chunks and c.start_ns < c.end_ns for c in known)
    for log in run.ranks:  # two chunks of each
        assert sorted((chunk.id, chunk.chunk) for chunk in log.chunks) == sorted(
            (c.id, chunk) for c in known for chunk in range(2)
        )
        assert all(chunk.phases for chunk in log.chunks)
    assert [row["iteration"] for row in run.result["collectives"]] == [0, 1, 2]
    # DDP's reducer waits for its one bucket from when the pass is over, so as good as all the time.
    for record in (record for one in known for record in one.by_rank.values()):
        assert record.waited_ns == pytest.approx(record.end_ns - record.start_ns, rel=0.01)
    sent = messages_of(run)
    assert sent == messages_by("double-binary-tree")
    assert sent != messages_by("ring")


def test_a_ddp_script_of_torchrun_sends_over_roce_where_the_run_has_it(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(
        "fabric: {kind: flat, hosts: 2, link: {rate: 100Gbps, delay: 1us, mtu: 4200}}\n"
        "transport: {kind: roce, path_mtu: 4096}\ncapture: {points: [hosts]}\npredict: []\n"
    )
    script = (HERE / "ddp_script.py").read_text()
    (tmp_path / "train.py").write_text("import workloads.torch_backend\n" + script)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run",
        "-x", f"{VARIABLE}={{all_reduce: {{algorithm: ring}}}}",
        "--", "torchrun", "train.py", "groundwire",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "run")
    assert [(log.queue_pairs[0].group, log.queue_pairs[0].peer) for log in run.ranks] == [
        ("default", 1),
        ("default", 0),
    ]
    capture = load_capture(run)
    assert capture is not None
    over_roce = [flow for flow in flows_of(capture).flows if flow.carried]
    assert {(flow.source, flow.destination) for flow in over_roce} == {(0, 1), (1, 0)}
    # Three steps' gradients, half of them each way in each half of the ring, and credits.
    assert all(flow.payload_bytes > 3 * GRADIENTS_BYTES for flow in over_roce)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({TRANSPORT_VARIABLE: "rdma"}, "found 'rdma', allowed: tcp, roce"),
        ({TRANSPORT_VARIABLE: "roce"}, "found roce where there are no RDMA devices, allowed: tcp"),
        (
            {TRANSPORT_VARIABLE: "roce", place_variable("roce"): "{}"},
            "allowed: the value that the run set",
        ),
    ],
)
def test_a_transport_that_cannot_be_had_is_named(environment: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        place_of(environment)


def test_a_place_comes_back_from_the_environment_as_it_was() -> None:
    place = RocePlace(Path("/a.so"), ("x", "y"), (0, 1, 1), "10.0.0.2", Path("/r"), 4096, 8, 7)
    environment = {TRANSPORT_VARIABLE: "roce", place_variable("roce"): place.to_json()}
    assert place_of(environment) == place
    assert place_of(environment | {TRANSPORT_VARIABLE: "tcp"}) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{order: random}", "order: found 'random'"),
        ("{alreduce: {}}", "alreduce"),
        ("[1]", "found [1], allowed: keys of `collectives`"),
        ("{a: ", "here"),
    ],
)
def test_mistakes_in_the_configuration_are_named(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(text, "here")
    assert str(raised.value).startswith("here")
    assert said in str(raised.value)


def test_what_is_needed_first_goes_first(tmp_path: Path) -> None:
    """Posted last, the first layer's gradient overtakes the others', so that the next step begins
    while these are still on their way."""
    (tmp_path / "fabric.yaml").write_text(
        "fabric: {kind: flat, hosts: 2, link: {rate: 25Gbps, delay: 1us, mtu: 9000}}\n"
        "collectives: {backend: programs, all_reduce: {algorithm: ring}}\n"
        "capture: {points: []}\npredict: []\n"
    )
    (tmp_path / "train.py").write_text((HERE / "priority_script.py").read_text())
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "python", "train.py"
    )
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "run" / "ranks" / "000.out").read_text().split()
    step_s = {said[i]: float(said[i + 1]) for i in (0, 2)}
    known = collectives_of(load_run(tmp_path / "run"))
    steps = [known[i : i + 4] for i in range(0, len(known), 4)]  # as posted: the last layer first
    assert len(steps) == 8
    ends = [[one.end_ns for one in step] for step in steps]
    assert all(end == sorted(end) for end in ends[:4])  # first in, first out
    assert all(end == sorted(end, reverse=True) for end in ends[4:])
    # The others' way is the next step's forward pass: three layers of 100 us.
    assert step_s["fifo"] - step_s["lifo"] == pytest.approx(300e-6, rel=0.2)

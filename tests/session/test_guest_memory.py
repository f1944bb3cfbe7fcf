"""A guest gets memory for what its workload exchanges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator import guest_memory
from emulator.guest_memory import guest_memory_bytes
from topologies.spec.spec import Spec, parse_dict

_MB = 10**6
_RANKS = 4


@pytest.fixture(autouse=True)
def _cpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take torch's build to be the one that the estimates were measured with."""
    monkeypatch.setattr(guest_memory, "version", lambda package: "2.13.0+cpu")


def test_builds_of_torch_for_accelerators_get_more(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = _spec({"kind": "collectives", "operations": [{"kind": "barrier"}]})
    usual = guest_memory_bytes(spec, Path())
    monkeypatch.setattr(guest_memory, "version", lambda package: "2.13.0")
    # Its own memory 157 MB more, and files in use 136 MB, in a guest where 4 ranks ran out of it.
    assert 293 * _MB <= guest_memory_bytes(spec, Path()) - usual <= 2 * 293 * _MB


def test_ranks_of_virtual_gpus_share_what_they_import() -> None:
    """A rank took 89 MB, and one that computes all it has as much as any program's."""
    argv: dict[str, object] = {"kind": "command", "argv": ["python", "t.py"], "ranks": 64}
    spec = _spec(argv)
    programs = guest_memory_bytes(spec, Path())
    gpus = _spec(argv | {"gpus_per_host": 1})
    shared = guest_memory_bytes(gpus, Path())
    assert 150 * _MB <= (programs - shared) / 64 <= 330 * _MB
    few = argv | {"ranks": 8}  # a framework may import as much again
    assert guest_memory_bytes(_spec(few | {"gpus_per_host": 1}), Path()) == guest_memory_bytes(
        _spec(few), Path()
    )
    computes = gpus.model_copy(
        update={"compute": gpus.compute.model_copy(update={"contents": "full"})}
    )
    assert guest_memory_bytes(computes, Path()) == programs


def test_programs_of_collectives_count_by_their_messages() -> None:
    """A guest of 16 ranks with 14,592 messages ran out of memory: each took 2.44 kB to make."""
    ring = {"kind": "all_reduce", "size": "8MB"}
    workload: dict[str, object] = {"kind": "collectives", "ranks": 128, "operations": [ring]}
    spec = _spec(workload)
    entry = {"backend": "programs", "all_reduce": {"algorithm": "ring"}}
    section = type(spec.collectives).model_validate(entry)
    programs = spec.model_copy(update={"collectives": section})
    more = guest_memory_bytes(programs, Path()) - guest_memory_bytes(spec, Path())
    assert more >= 2_440 * 128 * 2 * 127


def _spec(workload: dict[str, object], threads: int = 1) -> Spec:
    fabric = {"kind": "flat", "hosts": 128, "link": {"rate": "100Gbps", "delay": "1us"}}
    return Spec.model_validate(
        {
            "name": "memory",
            "fabric": fabric,
            "workload": {"ranks": _RANKS, **workload},
            "capture": {"backend": "socket"},
            "virtual": {"ranks_per_process": threads},
        }
    )


def _needed_for_trace(run_directory: Path, nodes: list[dict[str, object]]) -> int:
    directory = run_directory / "replay"
    directory.mkdir()
    for rank in range(_RANKS):
        lines = [json.dumps({"id": n, "name": str(n), **node}) for n, node in enumerate(nodes)]
        (directory / f"{rank:03d}.jsonl").write_text("\n".join(lines))
    return guest_memory_bytes(_spec({"kind": "chakra", "path": "some/trace"}), run_directory)


def _collective(size_mb: int, *after: int) -> dict[str, object]:
    return {
        "kind": "collective", "collective": "all_reduce", "size_bytes": size_mb * _MB,
        "ranks": list(range(_RANKS)), "after": after, "place": len(after),
    }  # fmt: skip


@pytest.mark.parametrize("size_mb", [1, 300])
def test_a_trace_gets_at_least_what_the_same_collective_gets(tmp_path: Path, size_mb: int) -> None:
    operation = {"kind": "all_reduce", "size": f"{size_mb}MB"}
    alike = guest_memory_bytes(_spec({"kind": "collectives", "operations": [operation]}), tmp_path)
    assert _needed_for_trace(tmp_path, [_collective(size_mb)]) >= alike
    assert alike > _RANKS * size_mb * _MB


def test_what_may_be_under_way_together_counts_together(tmp_path: Path) -> None:
    needed = []
    for name, after in (("behind", (0,)), ("beside", ())):
        (tmp_path / name).mkdir()
        compute = {"kind": "compute", "duration_ns": 5}
        needed.append(
            _needed_for_trace(
                tmp_path / name, [_collective(300), _collective(200, *after), compute]
            )
        )
    behind, beside = needed
    assert beside - behind >= _RANKS * 200 * _MB


def test_nodes_that_wait_for_each_other_are_left_to_the_replay(tmp_path: Path) -> None:
    knot = [_collective(300, 1), _collective(300, 0), _collective(1)]
    (tmp_path / "free").mkdir()
    free = _needed_for_trace(tmp_path / "free", [_collective(1)])
    assert _needed_for_trace(tmp_path, knot) == free


def _needed(workload: dict[str, object]) -> int:
    return guest_memory_bytes(_spec({"ranks": 8, **workload}), Path())


def _one(kind: str, size_mb: int, ranks: int = 8, iterations: int = 1) -> dict[str, object]:
    operation = {"kind": kind, "size": f"{size_mb}MB"}
    return {"ranks": ranks, "iterations": iterations, "operations": [operation]}


_TRAINING: dict[str, object] = {"kind": "training", "parallelism": {"data": 8}}
_BATCH = {"kind": "training", "batch_size": 64}


@pytest.mark.parametrize(
    ("workload", "measured_mb"),
    [
        (_one("all_reduce", 1, ranks=2), 467),
        (_one("all_reduce", 1, ranks=32), 923),
        (_one("all_reduce", 1, ranks=64), 1415),
        (_one("all_reduce", 8), 629),
        (_one("all_reduce", 8, iterations=3), 723),
        (_one("all_reduce", 256), 2800),
        (_one("all_reduce", 32, ranks=32, iterations=2), 3280),
        (_one("all_to_all", 8), 688),
        (_one("all_to_all", 30, iterations=3), 1282),
        (_one("all_to_all", 256), 4808),
        (_one("all_to_all", 32, ranks=32, iterations=2), 4520),
        (_one("all_to_all", 8, ranks=64, iterations=2), 3644),
        (_one("all_gather", 64), 1216),
        (_one("reduce_scatter", 64, iterations=2), 1271),
        (_one("reduce_scatter", 16, ranks=32, iterations=2), 2633),
        (_one("reduce", 64, iterations=2), 1161),
        (_one("broadcast", 256), 1667),
        (_one("gather", 256), 1287),
        (_one("gather", 64, ranks=32, iterations=2), 1188),
        (_one("scatter", 256), 1074),
        (_one("incast", 64), 1471),
        (_one("permutation", 100, iterations=2), 2252),
        ({"kind": "dlrm"}, 680),
        ({"kind": "dlrm", "ranks": 64}, 2609),
        ({"kind": "dlrm", "top_mlp": [3584, 3584, 1]}, 1225),
        ({"kind": "dlrm", "top_mlp": [1024, 16384, 1024, 1]}, 1953),
        ({"kind": "dlrm", "batch_size": 8192}, 1791),
        ({**_TRAINING, "layers": 2, "hidden": 64, "vocabulary": 512}, 563),
        (_TRAINING, 1839),
        ({**_TRAINING, "overlap": False}, 971),
        ({**_TRAINING, "layers": 24}, 3629),
        ({**_BATCH, "parallelism": {"pipeline": 8}}, 2346),
        ({**_BATCH, "parallelism": {"tensor": 8}, "microbatches": 1}, 1279),
    ],
)
def test_a_workload_gets_what_it_was_measured_to_take(
    workload: dict[str, object], measured_mb: int
) -> None:
    """Measured: the most that the guest's kernel had in use (all its memory less what is free) at
    100 Gb/s, MTU 9000, 32 MB per port, in guests of 8 and 12 GB."""
    needed = _needed({"kind": "collectives", **workload})
    assert measured_mb * _MB <= needed <= 2 * measured_mb * _MB


def test_samples_cost_what_they_can_hold() -> None:
    """k=4: 96 ports. A few messages change their backlogs a few times, however often one looks."""
    workload = {"kind": "collectives", **_one("all_reduce", 1, ranks=16)}
    document = {
        "name": "sampled",
        "fabric": {"kind": "fat-tree", "k": 4},
        "workload": workload,
        "counters": {"interval": "10us"},
    }
    sampled = guest_memory_bytes(parse_dict(document), Path())
    bare = guest_memory_bytes(parse_dict({**document, "counters": {}}), Path())
    payload_bytes = 2 * 16 * 10**6
    assert 24 * 2 * payload_bytes / 9000 < sampled - bare < 30 * _MB
    workload["iterations"] = 10_000
    longest = guest_memory_bytes(parse_dict(document), Path())
    workload["iterations"] = 20_000
    assert guest_memory_bytes(parse_dict(document), Path()) == longest  # what a port keeps at most


def test_tables_of_buckets_count() -> None:
    """Each of 20 switches of a k=4 fat-tree has a group for each of the other edge switches, the
    edge switches 7 and others 8, and the kernel 32 bytes for a bucket."""

    def needed(routing: str | dict[str, object]) -> int:
        workload = {"kind": "collectives", **_one("all_reduce", 1, ranks=16)}
        fabric = {"kind": "fat-tree", "k": 4, "routing": routing}
        return guest_memory_bytes(
            parse_dict({"name": "groups", "fabric": fabric, "workload": workload}), Path()
        )

    groups = 8 * 7 + 12 * 8
    tables = needed({"kind": "ecmp", "resilient": {"buckets": 65_535}}) - needed("ecmp")
    assert groups * 32 * 65_535 < tables < 1.01 * groups * 32 * 65_535


def test_rings_have_room_at_every_port() -> None:
    """A ring in a guest has a place for 64 packets at least, each a power of two of bytes (a whole
    jumbo frame with its header: 16 KiB): 324 ports of a fat-tree. All rings together take an eighth
    of what is free without them."""
    document = {
        "name": "rings",
        "fabric": {"kind": "fat-tree", "k": 6},
        "workload": {"kind": "collectives", **_one("all_reduce", 1, ranks=16)},
        "capture": {"points": ["all"], "snaplen": 9038},
    }

    def rings_bytes(points: str) -> tuple[int, int]:
        by_socket = {
            **document,
            "capture": {"points": [points], "snaplen": 9038, "backend": "socket"},
        }
        by_rings = {**by_socket, "capture": {**by_socket["capture"], "backend": "ring"}}  # type: ignore[dict-item]
        without = guest_memory_bytes(parse_dict(by_socket), Path())
        return guest_memory_bytes(parse_dict(by_rings), Path()) - without, without

    rings, _ = rings_bytes("all")
    assert rings == 6 * 54 * 64 * 16384
    rings, without = rings_bytes("hosts")
    assert 0.9 < rings / (without / 8) <= 1


@pytest.mark.parametrize(
    ("size", "iterations", "ranks", "measured_mb"),
    [("100KB", 3, 64, 536), ("100KB", 3, 128, 668), ("256MB", 1, 8, 2463)],
)
def test_packed_ranks_get_what_they_were_measured_to_take(
    size: str, iterations: int, ranks: int, measured_mb: int
) -> None:
    operations = [{"kind": "all_reduce", "size": size}]
    workload = {"ranks": ranks, "iterations": iterations, "operations": operations}
    collectives: dict[str, object] = {"kind": "collectives", **workload}
    processes, halves, threads = (
        guest_memory_bytes(_spec(collectives, per_process), Path())
        for per_process in (1, ranks // 2, ranks)
    )
    assert measured_mb * _MB <= threads < halves < processes
    assert processes - threads >= (ranks - 1) * 20 * 2**20 - ranks**2 * 2**14


@pytest.mark.parametrize(("ranks", "too_little_mb"), [(32, 2263), (64, 4100)])
def test_packed_ranks_get_more_than_was_seen_to_be_too_little(
    ranks: int, too_little_mb: int
) -> None:
    """Four iterations and more of an all-reduce and an all-to-all of 8 MB."""
    operations = [{"kind": kind, "size": "8MB"} for kind in ("all_reduce", "all_to_all")]
    workload = {"ranks": ranks, "iterations": 4, "operations": operations}
    collectives: dict[str, object] = {"kind": "collectives", **workload}
    assert guest_memory_bytes(_spec(collectives, ranks), Path()) > 1.1 * too_little_mb * _MB


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all"])
def test_pairs_that_never_connect_cost_little(kind: str) -> None:
    eager = _spec({"kind": "collectives", **_one(kind, 64, ranks=128)}, threads=128)
    virtual = eager.virtual.model_copy(update={"connections": "lazy"})
    lazy = eager.model_copy(update={"virtual": virtual})
    fewer = guest_memory_bytes(eager, Path()) - guest_memory_bytes(lazy, Path())
    assert (fewer > 128 * 100 * 7500) if kind == "all_reduce" else (fewer == 0)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "broadcast", "incast", "permutation"])
def test_shared_payload_is_held_once(kind: str) -> None:
    workload = {"kind": "collectives", **_one(kind, 64, ranks=64, iterations=2)}
    checked = _spec(workload)
    timed = checked.model_copy(update={"payload": "timing"})
    fewer = guest_memory_bytes(checked, Path()) - guest_memory_bytes(timed, Path())
    assert fewer >= 64 * 64 * _MB * (126 / 64 if kind == "incast" else 1)


def test_gradients_on_their_way_are_held_together() -> None:
    training = {"kind": "training", "parallelism": {"data": 8}, "hidden": 1024}
    layer_bytes = 12 * 1024**2 * 4
    shallow, deep = (_needed({**training, "layers": layers}) for layers in (8, 24))
    more_bytes = 8 * 16 * layer_bytes * (1 + 1 / 8)  # and a ring's block of each on its way
    assert 1 <= (deep - shallow) / more_bytes < 1.1  # with gaps between them
    alone = [_needed({**training, "layers": layers, "overlap": False}) for layers in (8, 24)]
    # A rank's log has more lines: a kilobyte for each call of the 16 layers more, forward and back.
    assert 0 <= alone[1] - alone[0] <= 8 * 16 * 4 * 1024
    assert alone[1] < shallow


def test_a_dlrm_layer_larger_than_a_bucket_is_one() -> None:
    dlrm = {"kind": "dlrm", "bucket": "1MB"}
    narrow, wide = (_needed({**dlrm, "top_mlp": [1024, n, 1]}) for n in (1024, 65_536))
    assert wide - narrow > 8 * 4 * 1024 * (65_536 - 1024)


def test_chunks_in_flight_have_their_threads_once() -> None:
    """The estimate has the threads of bounded chunks once for all collectives that are under way
    together."""

    def needed(layers: int, in_flight: int) -> int:
        training = {
            "kind": "training",
            "parallelism": {"data": 8},
            "hidden": 1024,
            "layers": layers,
        }
        spec = _spec({"ranks": 8, **training}).to_dict()
        spec["payload"] = "timing"
        spec["collectives"] = {
            "backend": "programs",
            "all_reduce": {"algorithm": "ring", "chunks": 16},
            "in_flight": in_flight,
        }
        return guest_memory_bytes(parse_dict(spec), Path())

    more_threads_bytes = 8 * 16 * 16 * 96 * 2**10
    bounded, unbounded = (needed(24, n) - needed(8, n) for n in (16, 0))
    assert unbounded - bounded == 2 * more_threads_bytes

"""Runs in copies of a guest that has booted before: what they measure, and how they end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import emulator.prepared_guest
import emulator.virtual.boot
from emulator.prepared_guest import (
    SOURCE,
    experiment_guest,
    guest_prepared,
    open_files,
    prepared_guest,
)
from emulator.progress import Progress
from emulator.session import run_session
from emulator.virtual.building.build import ensure_kernel
from groundwire.search.variations import Within, variation
from topologies.spec.spec import Spec, parse_spec


def _spec(**further: object) -> Spec:
    description = {
        "name": "pair",
        "fabric": {
            "kind": "leaf-spine",
            "leaves": 2,
            "spines": 2,
            "hosts_per_leaf": 1,
            "link": {"rate": "10Gbps", "delay": "1us", "mtu": 9000},
        },
        "workload": {
            "kind": "collectives",
            "ranks": 2,
            "operations": [{"kind": "all_reduce", "size": "100KB"}],
        },
        "capture": {"points": ["all"]},
    }
    return parse_spec(json.dumps(description | further), "pair")


def _ignore(progress: Progress) -> None:
    pass


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    """The socket of a guest that is prepared."""
    with guest_prepared(ensure_kernel(print), [_spec()] * 3):
        found = prepared_guest()
        assert found is not None
        yield Path(found.socket)
    assert prepared_guest() is None


def _files(directory: Path) -> dict[str, bytes]:
    names = (path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in names
        if path.name != "environment.json"  # has wall time
    }


def test_copies_leave_the_bytes_of_a_guest_of_their_own(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.delenv(emulator.prepared_guest.VARIABLE)
        run_session(_spec(), "virtual", tmp_path / "own", _ignore)

    def refuse(*given: object) -> None:
        raise AssertionError("a guest boots for a run that a copy serves")

    monkeypatch.setattr(emulator.virtual.boot, "guest_process", refuse)
    own = _files(tmp_path / "own")
    assert "links.jsonl" in own
    for name in ("first", "second"):
        run_session(_spec(), "virtual", tmp_path / name, _ignore)
        assert _files(tmp_path / name) == own


def test_another_clone_gets_no_copy(prepared: Path, tmp_path: Path) -> None:
    """It has imported this Groundwire."""
    found, kernel, spec = prepared_guest(), ensure_kernel(print), _spec()
    assert found is not None
    guest = experiment_guest(tmp_path, 10**8, open_files(spec), spec.seed, prepares=True)
    assert found.serves(spec, kernel, guest)
    assert not replace(found, source=str(tmp_path)).serves(spec, kernel, guest)


_MEETS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1000))
print(torch.randint(10**9, (1,)).item(), flush=True)
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_copies_for_a_program_do_so_with_seeds_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ranks that set out late, and so clients of a store that try again and again."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (tmp_path / "meets.py").write_text(_MEETS)
    workload = {
        "kind": "command", "argv": ["python", "meets.py"], "ranks": 2, "directory": str(tmp_path)
    }  # fmt: skip
    plain = _spec(workload=workload, predict=[])
    specs = [variation(plain, seed, ("order", "starts"), Within(10**9)) for seed in (7, 8, 9)]
    with guest_prepared(ensure_kernel(print), specs):
        assert prepared_guest() is not None
        for number, spec in enumerate((specs[0], specs[1])):
            run_session(spec, "virtual", tmp_path / f"copy-{number}", _ignore)
    assert prepared_guest() is None
    run_session(specs[0], "virtual", tmp_path / "own", _ignore)
    own = _files(tmp_path / "own")
    assert len(own["ranks/000.jsonl"]) > 200
    assert _files(tmp_path / "copy-0") == own
    assert _files(tmp_path / "copy-1") != own


_ASKS = """
import sys, time
from pathlib import Path
from emulator.virtual.standing import copied_guest
with copied_guest(Path(sys.argv[1]), Path(sys.argv[2])) as pid:
    print(pid, flush=True)
    time.sleep(600)
"""


def test_a_copy_ends_with_who_asked_for_it(prepared: Path, tmp_path: Path) -> None:
    # Without a guest.json it fails, and ends; so let it have one that it cannot read to its end.
    for name in ("console", "status", "stdout", "stderr"):
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "guest.json")
    with subprocess.Popen(
        [sys.executable, "-c", _ASKS, str(prepared), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=SOURCE,
    ) as asking:
        assert asking.stdout is not None
        ended = os.pidfd_open(int(asking.stdout.readline()))
        assert not select.select([ended], [], [], 0)[0]
        asking.send_signal(signal.SIGKILL)
    assert select.select([ended], [], [], 600)[0]
    os.close(ended)


@pytest.mark.parametrize(
    "specs",
    [
        [_spec()] * 2,
        [_spec(seed=number) for number in range(6)],
        [_spec(virtual={"memory": "1GB"})] * 6,
    ],
    ids=["few", "of-other-seeds", "with-memory-asked-for"],
)
def test_no_guest_is_prepared_where_too_few_runs_would_be_copies(
    specs: list[Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(emulator.prepared_guest.VARIABLE, raising=False)
    with guest_prepared(ensure_kernel(print), specs):
        assert prepared_guest() is None

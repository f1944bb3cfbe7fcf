"""Output directories are claimed: no two runs write into one, and leavings block nobody."""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.synchronize
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emulator.output_directory import MARKER, DirectoryBusy, alone_in, claimed, new_directory
from groundwire.studies.engine import JobEvent
from groundwire.studies.jobs import Job
from groundwire.sweeping import SweepFailed, sweep, sweep_at_once
from tests.session.command import ROOT
from topologies.spec.spec import parse_spec

_SMALL = """
name: small
fabric: {kind: flat, hosts: 2, link: {rate: 10Gbps, delay: 1us, mtu: 1500}}
workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 100KB}]}
predict: [alpha-beta]
"""


def test_default_names_cannot_meet(tmp_path: Path) -> None:
    """Each of sixteen calls in one second gets a directory of its own."""

    def use(number: int) -> Path:
        with new_directory(tmp_path / "runs", "name") as directory:
            assert list(directory.iterdir()) == []
            (directory / "spec.yaml").write_text(str(number))
        return directory

    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(use, range(16)))
    assert len(set(made)) == 16
    assert [int((each / "spec.yaml").read_text()) for each in made] == list(range(16))


def test_a_directory_in_which_nothing_was_written_goes(tmp_path: Path) -> None:
    with new_directory(tmp_path / "runs", "name"):
        pass
    assert list(tmp_path.iterdir()) == []


def _claim(directory: Path, go: multiprocessing.synchronize.Event) -> bool:
    go.wait()
    try:
        with claimed(directory):
            (directory / "spec.yaml").write_text(str(os.getpid()))
            (directory / "spec.yaml").rename(directory / "result.json")
    except FileExistsError:
        return False
    return True


@pytest.mark.parametrize("there", [False, True], ids=["absent", "empty"])
def test_of_processes_that_want_one_directory_one_gets_it(tmp_path: Path, there: bool) -> None:
    context = multiprocessing.get_context("fork")
    for number in range(20):
        directory = tmp_path / str(number)
        if there:
            directory.mkdir()
        with context.Manager() as manager:
            go = manager.Event()
            with context.Pool(4) as pool:
                asked = [pool.apply_async(_claim, (directory, go)) for _ in range(4)]
                go.set()
                got = [each.get() for each in asked]
        assert sum(got) == 1
        assert [path.name for path in directory.iterdir()] == ["result.json"]


def test_while_a_run_is_at_work_its_directory_is_taken(tmp_path: Path) -> None:
    with claimed(tmp_path / "run"):
        (tmp_path / "run" / "spec.yaml").write_text("mine")
        with (
            pytest.raises(DirectoryBusy, match="another run is at work"),
            claimed(tmp_path / "run"),
        ):
            pass
        assert (tmp_path / "run" / "spec.yaml").read_text() == "mine"


def test_the_leavings_of_an_interrupted_run_are_replaced(tmp_path: Path) -> None:
    killed = (
        "import os, sys; from pathlib import Path\n"
        "from emulator.output_directory import claimed\n"
        "place = Path(sys.argv[1])\n"
        "with claimed(place):\n"
        "    (place / 'ranks').mkdir(); (place / 'spec.yaml').write_text('killed')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", killed, str(tmp_path / "run")], cwd=ROOT, check=False)
    assert (tmp_path / "run" / "spec.yaml").read_text() == "killed"
    with claimed(tmp_path / "run"):
        assert [path.name for path in (tmp_path / "run").iterdir()] == [MARKER]
        (tmp_path / "run" / "spec.yaml").write_text("whole")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["spec.yaml"]
    with pytest.raises(FileExistsError, match="not empty"), claimed(tmp_path / "run"):
        pass


def test_another_user_s_directory_is_not_written_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even an empty one: its owner can change what is in it."""
    (tmp_path / "theirs").mkdir()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with (
        pytest.raises(PermissionError, match=f"belongs to user {owner}"),
        claimed(tmp_path / "theirs"),
    ):
        pass
    assert list((tmp_path / "theirs").iterdir()) == []


def test_one_at_a_time_is_in_a_directory_that_many_fill(tmp_path: Path) -> None:
    with (
        alone_in(tmp_path / "study", "study"),
        pytest.raises(DirectoryBusy, match="another study"),
        alone_in(tmp_path / "study", "study"),
    ):
        pass
    with alone_in(tmp_path / "study", "study"):
        pass
    assert list((tmp_path / "study").iterdir()) == []


def test_two_runs_of_one_name_in_one_second_have_results_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(_SMALL)
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "groundwire.cli", "run", "small.yaml", "--kernel", "virtual",
             "--json", "--set", f"fabric.link.rate={rate}"],
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rate in ("10Gbps", "100Gbps")
    ]  # fmt: skip
    said = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    slow_ns, fast_ns = (json.loads(out)["collectives"][-1]["duration_ns"] for out, _ in said)
    # 100 KB are on the wire, each way, for 80 us at 10 Gb/s and for 8 us at 100 Gb/s.
    assert slow_ns > 80_000 > fast_ns > 8_000
    rates = sorted((run / "spec.yaml").read_text().count("rate: 100Gbps") for run in
                   (tmp_path / "runs").iterdir())  # fmt: skip
    assert len(rates) == 2
    assert rates[0] == 0 < rates[1]


def test_a_second_sweep_is_not_blocked_by_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = parse_spec(_SMALL)
    made = [
        case.run.directory
        for _ in range(2)
        for case in sweep(spec, {"fabric.link.mtu": [1500]}, kernel="virtual")
    ]
    assert len({path.parent for path in made}) == 2
    assert {path.parent.parent for path in made} == {Path("runs")}
    assert all((path / "result.json").exists() for path in made)


def test_what_a_killed_sweep_has_left_at_its_work_blocks_nobody(tmp_path: Path) -> None:
    (tmp_path / ".at-work" / "abc").mkdir(parents=True)
    asked: list[str] = []

    def engine(jobs: Sequence[Job], place: Path, tell: Callable[[JobEvent], None]) -> None:
        assert list(place.iterdir()) == []
        for job in jobs:
            asked.append(job.label)
            tell(JobEvent(job, "failed", failure="asked to"))

    with pytest.raises(SweepFailed, match="asked to"):
        list(sweep_at_once(parse_spec(_SMALL), {"seed": [1, 2]}, out=tmp_path, engine=engine))
    assert asked == ["seed=1", "seed=2"]
    assert list(tmp_path.iterdir()) == []

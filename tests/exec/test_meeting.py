"""Scripts that start their own ranks, or have them meet at this machine's own address, are told
what to change; needs no guest."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workloads.observer.meeting import Meeting, OwnMeeting

_HOSTS = ["h0", "h1", "h2", "h3"]


@pytest.fixture(autouse=True)
def of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("WORLD_SIZE", "4"),
        ("LOCAL_WORLD_SIZE", "1"),
        ("MASTER_ADDR", "10.0.0.2"),
    ):
        monkeypatch.setenv(name, value)


def test_a_run_as_it_should_be_is_not_refused() -> None:
    Meeting(_HOSTS).check(None, None, None)
    Meeting(_HOSTS).check("tcp://h0:1234", None, 4)
    Meeting(_HOSTS).check("file:///tmp/store", None, 4)


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "::1"])
def test_ranks_of_several_hosts_do_not_meet_at_this_one(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("MASTER_ADDR", address)
    with pytest.raises(OwnMeeting, match=r"4 ranks meet .* on 4 hosts. Leave MASTER_ADDR"):
        Meeting(_HOSTS).check("env://", None, -1)
    with pytest.raises(OwnMeeting):
        Meeting(_HOSTS).check("tcp://127.0.0.1:1234", None, 4)
    Meeting(["h0"] * 4).check("env://", None, 4)  # they are all here
    Meeting(_HOSTS).check("env://", object(), 4)  # a store of its own
    Meeting(_HOSTS).check("env://", None, 1)  # one that is alone


def test_a_script_that_spawns_its_ranks_is_told_how_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    module = SimpleNamespace(start_processes=lambda fn, args, nprocs: started.append(nprocs))
    Meeting(_HOSTS).watch_spawn(module)
    script = tmp_path / "train.py"
    main: Any = SimpleNamespace(__module__="a_script")
    monkeypatch.setitem(
        __import__("sys").modules, "a_script", SimpleNamespace(__file__=str(script))
    )
    script.write_text("dist.init_process_group('gloo')")
    with pytest.raises(OwnMeeting, match=r'os.environ\["RANK"\].*--ranks 4 --ranks-per-host 4'):
        module.start_processes(main, (), 4)
    script.write_text("print('loads data')")
    module.start_processes(main, (), 4)
    assert started == [4]


def test_a_process_that_a_script_has_started_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    with pytest.raises(OwnMeeting, match="starts 4 ranks of its own"):
        Meeting(_HOSTS).check(None, None, 4)

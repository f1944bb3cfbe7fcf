"""`workload: {kind: command}` in a spec, and where its ranks are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from emulator.ranks.working_directory import working_directory
from groundwire.commands.app import app
from groundwire.commands.console.separator import separated
from groundwire.commands.execute import Per, starts
from topologies.spec.spec import SpecError, load_spec, parse_spec
from topologies.spec.workload_section import CommandWorkload
from workloads.observer import OBSERVER, PLAN_VARIABLE

_SPEC = """
name: program
fabric: {{kind: flat, hosts: 4}}
workload: {{kind: command, {rest}}}
"""


def _workload(rest: str) -> CommandWorkload:
    workload = parse_spec(_SPEC.format(rest=rest)).workload
    assert isinstance(workload, CommandWorkload)
    return workload


def test_a_command_line_is_split_as_in_a_shell_and_numbers_are_words() -> None:
    found = _workload("argv: python train.py --name 'two words', ranks: 4, env: {N: 3, LR: 0.1}")
    assert found.argv == ("python", "train.py", "--name", "two words")
    assert found.env == {"N": "3", "LR": "0.1"}
    assert _workload("argv: [train, --epochs, 2], ranks: 4").argv == ("train", "--epochs", "2")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("argv: [], ranks: 4", "argv"),
        ('argv: "a \'b", ranks: 4', "expected a command line as in a shell"),
        ("argv: [a], ranks: 9", "expected at most 4"),
        ("argv: [a], ranks: 9, ranks_per_host: 2", "multiple of ranks_per_host = 2"),
        ("argv: [a], ranks: 10, ranks_per_host: 2", "expected at most 8"),
        ("argv: [a], ranks: 4, per: node", "rank"),
    ],
)
def test_mistakes_are_told(rest: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(_SPEC.format(rest=rest))


@pytest.mark.parametrize(
    ("rest", "collectives", "said"),
    [
        ("ranks: 4", "{all_reduce: {algorithm: ring}}", "expected backend: programs beside it"),
        ("ranks: 4", "{backend: gloo, all_reduce: {algorithm: ring}}", None),
        ("ranks: 4", "{backend: programs, all_reduce: {algorithm: ring}}", None),
        ("ranks: 4", "{backend: programs, all_reduce: {algorithm: rnig}}", "algorithm"),
        ("ranks: 4, observe: false", "{backend: programs}", "the observer has torch run programs"),
        (
            "ranks: 4",
            "{backend: programs, all_reduce: {algorithm: aggregation}}",
            "with a section aggregation, which says what switches reduce",
        ),
    ],
)
def test_a_program_has_the_specs_collectives(rest: str, collectives: str, said: str | None) -> None:
    text = _SPEC.format(rest=f"argv: [a], {rest}") + f"collectives: {collectives}\n"
    if said is None:
        parse_spec(text)
        return
    with pytest.raises(SpecError, match=said):
        parse_spec(text)


@pytest.mark.parametrize("placement", ["linear", "strided", "random"])
def test_neighbouring_ranks_share_a_host(placement: str) -> None:
    text = _SPEC.format(rest="argv: [a], ranks: 6, ranks_per_host: 2")
    hosts = parse_spec(text + f"placement: {placement}\n").plan.hosts
    assert len(hosts) == 6 and len(set(hosts)) == 3
    assert hosts[0::2] == hosts[1::2]


def test_a_placement_by_hand_keeps_hosts_together() -> None:
    text = _SPEC.format(rest="argv: [a], ranks: 4, ranks_per_host: 2")
    right = parse_spec(text + "placement: {0: h3, 1: h3, 2: h1, 3: h1}\n")
    assert right.plan.hosts == ("h3", "h3", "h1", "h1")
    with pytest.raises(SpecError, match="expected h3, as a host runs 2 neighbouring ranks"):
        parse_spec(text + "placement: {0: h3, 1: h1, 2: h1, 3: h3}\n")
    with pytest.raises(SpecError, match="rank 0 is on h3"):
        parse_spec(text + "placement: {0: h3, 1: h3, 2: h3, 3: h3}\n")


def test_its_directory_is_beside_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(_SPEC.format(rest="argv: [a], ranks: 4, directory: code"))
    workload = load_spec(path).workload
    assert isinstance(workload, CommandWorkload) and workload.directory == str(tmp_path / "code")
    assert load_spec(path).with_overrides({"workload.argv": "b c"}).workload.kind == "command"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun train.py", "host"),
        ("/opt/venv/bin/torchrun --nnodes 2 train.py", "host"),
        ("python -m torch.distributed.run train.py", "host"),
        ("python -u -m torch.distributed.run train.py", "host"),
        ("python train.py torchrun", "rank"),
        ("python -m train", "rank"),
        ("python -m", "rank"),
        ("mpirun -n 4 a.out", "job"),
        ("/usr/bin/mpiexec.openmpi a.out", "job"),
        ("env mpirun a.out", "rank"),
    ],
)
def test_launchers_are_started_where_they_start_ranks_from(command: str, expected: str) -> None:
    assert starts(Per.auto, command.split()) == expected
    assert starts(Per.host, command.split()) == "host"
    assert starts(Per.rank, command.split()) == "rank"
    assert starts(Per.job, command.split()) == "job"


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("s.yaml -- python t.py --lr 1", "s.yaml -- python t.py --lr 1"),
        ("s.yaml python t.py --out mine", "s.yaml -- python t.py --out mine"),
        ("s.yaml -n 4 --no-observe t --json", "s.yaml -n 4 --no-observe -- t --json"),
        ("--kernel=virtual -n4 s.yaml t -x", "--kernel=virtual -n4 s.yaml -- t -x"),
        ("s.yaml --rank 4 t", "s.yaml --rank 4 t"),
        ("s.yaml --ranks 4", "s.yaml --ranks 4"),
    ],
)
def test_what_follows_a_program_is_its_own(given: str, parsed: str) -> None:
    command: Any = get_command(app)
    ours = command.get_command(None, "exec")
    assert separated(ours, given.split(), own=1) == parsed.split()


def test_a_working_directory_keeps_what_was_written(tmp_path: Path) -> None:
    shown, work = tmp_path / "shown", tmp_path / "work"
    (shown / "package").mkdir(parents=True)
    for name in ("train.py", "config", "package/module.py"):
        (shown / name).write_text(name)
    with working_directory(shown, work):
        assert (work / "train.py").read_text() == "train.py"
        assert (work / "package" / "module.py").read_text() == "package/module.py"
        (work / "model").write_text("trained")
        (work / "config").unlink()
        (work / "config").write_text("replaced")
    assert {path.name: path.read_text() for path in work.iterdir()} == {
        "model": "trained",
        "config": "replaced",
    }
    assert (shown / "config").read_text() == "config"


def test_a_sitecustomize_of_the_user_is_loaded_as_well(tmp_path: Path) -> None:
    """In a Python without torch, too, which has nothing to observe."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.greeting = 'mine'\n")
    plan = {"hosts": ["h0"], "addresses": ["10.0.0.1"], "store_port": 1, "observe": True}
    (tmp_path / "observe.json").write_text(json.dumps(plan | {"grid_ns": None}))
    program = (
        "import sys; print(greeting, sys.modules['sitecustomize'].__file__, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            "PYTHONPATH": f"{OBSERVER}:{tmp_path}",
            PLAN_VARIABLE: str(tmp_path / "observe.json"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["mine", str(tmp_path / "sitecustomize.py"), "False"]
    assert done.stderr == ""

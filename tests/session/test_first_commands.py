"""The commands that newcomers type first: versions, help, typos, files of another kind, a spec to
start from."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groundwire.commands.app import COMMANDS, app
from groundwire.commands.specs.init import WORKLOADS, FabricKind
from tests.session.command import ROOT
from topologies.spec.spec import load_spec

_TWO = "topologies/two-hosts.yaml"


def _typed(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.stdout, done.stderr


def test_the_version_is_told() -> None:
    assert _typed("--version") == (0, f"groundwire {version('groundwire')}\n", "")


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS), ("trace", "export")])
def test_h_is_help(command: tuple[str, ...]) -> None:
    assert _typed(*command, "-h") == _typed(*command, "--help")
    assert _typed(*command, "-h")[0] == 0


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "groundwire", "--version"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == f"groundwire {version('groundwire')}\n"


def test_a_python_without_its_packages_is_told_where_they_are() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c",
         f"import sys; sys.path.insert(0, {str(ROOT)!r}); from groundwire.cli import main; main()"],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert (
        f"error: {sys.executable} has no typer, which Groundwire needs; `make setup` "
        in done.stderr
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("active", [True, False], ids=["active", "not active"])
def test_commands_are_told_as_they_can_be_typed(active: bool, tmp_path: Path) -> None:
    called = Path(sys.executable).with_name("groundwire")
    path = f"{called.parent}:/usr/bin:/bin" if active else "/usr/bin:/bin"

    def said(*arguments: str) -> str:
        done = subprocess.run(
            [called, *arguments], cwd=tmp_path, env=os.environ | {"PATH": path},
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout

    spoken = "groundwire" if active else str(called)
    assert f"run it with: {spoken} run x.yaml\n" in said("init", "x.yaml")
    assert f"#   {spoken} validate x.yaml" in (tmp_path / "x.yaml").read_text()
    assert (f"export PATH={called.parent}:$PATH" in said("lab", "start", "dlrm")) != active


def test_a_shell_completes_commands_and_options() -> None:
    for words, expected in (("groundwire va", "validate"), ("groundwire run --ker", "--kernel")):
        environment = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; sys.argv = ['groundwire']; from groundwire.cli import main; main()",
            ],
            cwd=ROOT,
            env=os.environ | environment | {"_GROUNDWIRE_COMPLETE": "complete_bash"},
            capture_output=True,
            text=True,
        )
        assert done.stdout.split() == [expected], done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("init", "x.yaml", "--workload", "allreduce"), "did you mean all_reduce?"),
        (("runn",), "Did you mean 'run'?"),
        (("run", _TWO, "--kernel", "natve"), "found 'natve'; did you mean native? allowed:"),
        (("predict", _TWO, "--predictor", "pakcet"), "'pakcet': did you mean packet?"),
        (("trace", "exprt"), "Did you mean 'export'?"),
        (
            ("predict", _TWO, "--set", "fabric.hosst=3"),
            "did you mean hosts?",
        ),
        (
            ("predict", _TWO, "--set", "fabric.kind=fattree"),
            "did you mean fat-tree?",
        ),
        (
            ("run", "studies/six-factors.yaml"),
            "found a study; expected the spec of a run; try groundwire study studies/six-fac",
        ),
        (
            ("predict", "topologies/designs/libra-4x4.yaml"),
            "found a design; expected the spec of a run; try groundwire design topologies/designs",
        ),
        (("study", _TWO), f"try groundwire run {_TWO}"),
        (("design", "studies/thousands.yaml"), "try groundwire study studies/thousands.yaml"),
    ],
)
def test_a_near_miss_is_answered_with_what_was_meant(arguments: tuple[str, ...], said: str) -> None:
    code, _, told = _typed(*arguments)
    assert code == 2
    assert said in told


@pytest.mark.parametrize("fabric", FabricKind)
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("ranks", [2, 5, 16, 130])
def test_init_writes_a_spec_that_is_right(
    tmp_path: Path, fabric: FabricKind, workload: str, ranks: int
) -> None:
    file = tmp_path / "mine.yaml"
    options = ("--fabric", fabric.value, "--workload", workload, "--ranks", str(ranks))
    code, _, told = _typed("init", str(file), *options, "--rate", "25Gbps")
    assert (code, told) == (0, "")
    spec = load_spec(file)
    assert (spec.fabric.kind, spec.ranks) == (fabric.value, ranks)
    assert spec.fabric.link.rate_bps == 25 * 10**9
    assert _typed("validate", str(file))[0] == 0


def test_init_overwrites_nothing_and_writes_nothing_wrong(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    assert _typed("init", str(file), "--rate", "10gbps")[0] == 2
    assert not file.exists()
    file.write_text("do not lose me")
    code, _, told = _typed("init", str(file))
    assert code == 1 and "exists already" in told
    assert file.read_text() == "do not lose me"


def test_validate_says_what_each_file_is_and_every_mistake(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("fabric: {kind: flat, hosts: two}\nworkload: {kind: dlrm, rank: 2}\n")
    files = [*sorted(ROOT.glob("topologies/*.yaml")), *sorted(ROOT.glob("studies/*.yaml"))]
    files += sorted(ROOT.glob("topologies/designs/*.yaml"))
    code, printed, told = _typed("validate", *map(str, files), str(wrong), str(tmp_path / "gone"))
    assert code == 2
    assert len(printed.splitlines()) == len(files)
    assert "two-hosts.yaml: flat, 2 hosts, 1 switches, 2 links; collectives, 2 ranks" in printed
    assert "line 1: fabric.hosts: found two" in told
    assert "line 2: workload.rank: found 2" in told
    assert "gone: found no such file; expected a YAML file" in told


def test_validate_takes_keys_to_set() -> None:
    spec, study = (
        str(ROOT / "topologies" / "two-hosts.yaml"),
        str(ROOT / "studies" / "thousands.yaml"),
    )
    code, printed, _ = _typed("validate", spec, "--set", "fabric.hosts=3")
    assert code == 0 and "flat, 3 hosts" in printed
    code, _, told = _typed("validate", study, "--set", "fabric.hosts=3")
    assert code == 2 and "expected --set for specs alone" in told

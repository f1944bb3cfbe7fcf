"""Bad input: one message that names what is wrong, exit code 2, and nothing made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from analysis.predict.models.textbook import Textbook
from analysis.results.result import write_result
from analysis.runs.run import load_run
from emulator.output_directory import remove_run
from emulator.virtual.building.build import find_kernel
from groundwire.commands.app import COMMANDS, added_commands, app
from groundwire.commands.console.outcome import outcome
from tests.predict.measured_run import write_run
from tests.session.command import ROOT, groundwire, result_of

_GOOD = """
name: small
fabric: {kind: flat, hosts: 2, link: {rate: 10Gbps, delay: 1us, mtu: 1500}}
workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1MB}]}
"""


def test_a_mistake_in_a_spec_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    spec = tmp_path / "bad.yaml"
    spec.write_text(_GOOD.replace("ranks: 2", "ranks: 3"))
    out = tmp_path / "out"
    done = groundwire("run", spec, "--out", out)
    assert done.returncode == 2
    assert str(spec) in done.stderr and "workload.ranks" in done.stderr and "3" in done.stderr
    assert "Traceback" not in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "nowhere.yaml"), "nowhere.yaml"),
        (("run", "topologies/two-hosts.yaml", "--set", "fabric.hosts"), "KEY=VALUE"),
        (("run", "topologies/two-hosts.yaml", "--set", "fabric.hosst=3"), "hosts"),
        (("run", "topologies/two-hosts.yaml", "--kernel", "other"), "virtual"),
        (("report", "/nowhere"), "/nowhere"),
        (("trace", "replay", "/nowhere/trace"), "/nowhere/trace"),
        (("predict", "."), "found a directory; expected a YAML file"),
        (("calibrate", "--suite", "standard", "--largest", "frog"), "frog"),
        (("trace", "export", "topologies/two-hosts.yaml", "--calibration", "f"), "astra-sim"),
        (("frobnicate",), "frobnicate"),
    ],
)
def test_bad_arguments_end_in_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    done = groundwire(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("fabric.hosts=" + "[" * 2000, "YAML nested too deeply; expected at most 100 levels"),
        ("fabric.hosts=" + "[" * 150 + "]" * 150, "at most 100 levels"),
        ("fabric={kind: flat, hosts: 2, hosts: 3}", "fabric.hosts: found this key twice"),
        ("fabric.hosts=[", "fabric.hosts: found '['; expected a YAML value"),
        ("fabric.hosts=&a [*a]", "an alias inside its own anchor"),
        ("compute.efficiency=.nan", "compute.efficiency: found .nan; expected a finite number"),
    ],
)
def test_a_bad_value_of_set_is_told_in_one_line_with_its_key(value: str, said: str) -> None:
    done = CliRunner().invoke(app, ["predict", "topologies/two-hosts.yaml", "--set", value])
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_that_cannot_be_written_is_named_without_python_s_words(tmp_path: Path) -> None:
    def refuse() -> int:
        tmp_path.write_text("")
        return 0

    with pytest.raises(typer.Exit) as ended, redirect_stderr(StringIO()) as said:
        outcome(refuse)()
    assert ended.value.exit_code == 1
    assert said.getvalue() == f"error: {tmp_path}: Is a directory\n"


def test_a_run_directory_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not lose me")
    done = groundwire("run", "topologies/two-hosts.yaml", "--out", tmp_path)
    assert done.returncode == 1
    assert "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_force_replaces_a_run_and_nothing_else(tmp_path: Path) -> None:
    taken, old, busy = tmp_path / "taken", tmp_path / "old", tmp_path / "busy"
    for directory in (taken, old, busy):
        directory.mkdir()
        (directory / "thesis.txt").write_text("do not lose me")
    for directory in (old, busy):
        for name in ("spec.yaml", "environment.json", "result.json"):
            (directory / name).write_text("{}")
    (busy / ".unfinished").write_text("")
    remove_run(old)
    assert not old.exists()
    remove_run(old)
    for directory, said in ((taken, "is no run directory"), (busy, "another run is at work")):
        with pytest.raises(FileExistsError, match=said):
            remove_run(directory)
        assert (directory / "thesis.txt").exists()


def test_force_is_understood_by_run_and_exec(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not lose me")
    for words in (("run",), ("exec",)):
        program = ("--", "true") if words == ("exec",) else ()
        out = ("--kernel", "virtual", "--out", tmp_path, "--force")
        done = groundwire(*words, "topologies/two-hosts.yaml", *out, *program)
        assert done.returncode == 1 and "is no run directory" in done.stderr


def test_a_sweep_with_a_taken_directory_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "002").mkdir()
    (tmp_path / "002" / "thesis.txt").write_text("do not lose me")
    axis = ("--set", "fabric.link.mtu=1500,9000")
    done = groundwire("sweep", "topologies/two-hosts.yaml", *axis, "--out", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {tmp_path / '002'} exists already and is not empty")
    assert not (tmp_path / "001").exists()


def test_a_sweep_that_fails_tells_what_it_has_measured(tmp_path: Path) -> None:
    axis = ("--set", "virtual.memory=auto,300GB")  # which no guest can have
    out = ("--kernel", "virtual", "--json", "--out", tmp_path)
    done = groundwire("sweep", "topologies/two-hosts.yaml", *axis, *out)
    assert done.returncode == 1
    assert "guest memory of 300,000 MB refused" in done.stderr
    (measured,) = json.loads(done.stdout)
    assert measured["set"] == {"virtual.memory": "auto"}
    assert measured["result"]["valid"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: else that is what is refused first")
def test_delays_without_netem_are_refused_naming_netem_and_the_other_kernel(
    tmp_path: Path,
) -> None:
    from emulator.native.kernel import missing_for
    from topologies.spec.spec import load_spec

    spec = tmp_path / "delays.yaml"
    spec.write_text(_GOOD)
    if not missing_for(load_spec(spec)):
        pytest.skip("this machine's kernel has netem")
    done = groundwire("run", spec, "--kernel", "native", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "netem" in done.stderr and "--kernel virtual" in done.stderr
    assert not (tmp_path / "out").exists()


def test_real_compute_is_refused_in_virtual_time(tmp_path: Path) -> None:
    done = groundwire(
        "run", "topologies/two-hosts.yaml", "--kernel", "virtual", "--out", tmp_path / "out",
        "--set", "compute.device=real",
    )  # fmt: skip
    assert done.returncode == 1
    assert "virtual time" in done.stderr and "--kernel native" in done.stderr
    assert not (tmp_path / "out").exists()


def _commands() -> list[tuple[str, ...]]:
    inner = {"trace": ("export", "import", "replay"), "kernel": ("build", "status")}
    alone = [(name,) for name in COMMANDS]
    return [(), *alone, *((name, one) for name, ones in inner.items() for one in ones)]


@pytest.mark.parametrize("columns", ["80", "120"])
def test_help_shows_no_values_for_flags_and_no_python_types(
    monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for command in _commands():
        said = CliRunner().invoke(app, [*command, "--help"]).output
        assert "Usage: " in said, command
        for never in ("<bool>", "list[", "<str>", "<path>", "int range", "{", "…"):
            assert never not in _without_examples(said), (command, never)


def test_a_package_adds_a_command_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed and run as ours are, and cannot take the place of one of ours."""
    (tmp_path / "greeter.py").write_text(
        "def greet(name: str) -> int:\n"
        '    """Greet somebody."""\n'
        '    print(f"hello {name}")\n'
        "    return 3\n"
    )
    about = tmp_path / "greeter-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: greeter\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[groundwire.commands]\ngreet = greeter:greet\nrun = greeter:greet\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    added_commands.cache_clear()
    try:
        assert added_commands() == {"greet": "greeter:greet"}
        done = CliRunner().invoke(app, ["greet", "h0"])
        assert (done.exit_code, done.stdout) == (3, "hello h0\n")
        assert "Greet somebody." in CliRunner().invoke(app, ["--help"]).stdout
    finally:
        added_commands.cache_clear()


def _without_examples(said: str) -> str:
    return said.replace("{kind:", "").replace("{...}", "")


def test_help_says_which_options_can_be_repeated_and_what_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for command, option, taken in (
        ("run", "--set", "--set workload.ranks=8"),
        ("predict", "--predictor", "flow-ideal-ecmp"),
        ("compare", "--predictor", "flow-ideal-ecmp"),
        ("calibrate", "--predictor", "flow-ideal-ecmp"),
        ("compare", "--external", "ns3-fct"),
    ):
        said = CliRunner().invoke(app, [command, "--help"]).output
        line = next(line for line in said.splitlines() if f" {option} " in line)
        assert "can be repeated" in line and taken in line


def test_help_is_as_wide_as_the_terminal_and_not_as_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for command in (("run",), ("trace", "import")):
        said = groundwire(*command, "--help").stdout
        prose = said.partition("╭")[0].splitlines()
        assert max(len(line.rstrip()) for line in prose) > 120


def test_a_suite_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    places = ("--directory", tmp_path / "runs", "--out", tmp_path / "calibration.json")
    done = groundwire("calibrate", "--suite", "standard", "--largest", "1KB", *places)
    assert done.returncode == 2
    assert done.stderr == "error: --largest 1KB leaves no run of the standard suite\n"


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    """More than a pipe holds, and nobody reads it."""
    command = [sys.executable, "-m", "groundwire.cli", "predict", "topologies/two-hosts.yaml"]
    operations = ", ".join(["{kind: all_reduce, size: 1MB}"] * 1000)
    options = ["--set", f"workload.operations=[{operations}]", "--predictor", "textbook"]
    for more in ([], ["--json"]):
        with subprocess.Popen(
            [*command, *options, *more],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None and process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == ""
        assert process.returncode == 0, more


# Python writes less than a buffer only when it ends, help is written before there is an outcome.
@pytest.mark.parametrize("command", ["predict topologies/two-hosts.yaml", "report --help"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_told_in_one_line(command: str, unbuffered: str) -> None:
    """Exit code 120, and 'Exception ignored in: <_io.TextIOWrapper ...>', or a traceback."""
    arguments = [sys.executable, "-m", "groundwire.cli", *command.split()]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    reading, writing = os.pipe()
    os.close(reading)
    for output, status in ((os.open("/dev/full", os.O_WRONLY), 1), (writing, 0)):
        done = subprocess.run(
            arguments, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.PIPE, text=True
        )
        os.close(output)
        assert done.returncode == status, done.stderr
        said = done.stderr.splitlines()
        assert len(said) == status
        assert all(line.startswith("error: ") and "No space left" in line for line in said)


def test_a_locale_without_utf_8_stops_no_report(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run, "{kind: flat, hosts: 8}", "{kind: all_reduce, size: 1MB}", Textbook())
    write_result(load_run(run))
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for form in ("html", "md", "csv"):
        done = subprocess.run(
            [sys.executable, "-m", "groundwire.cli", "report", str(run), "--format", form],
            cwd=ROOT, env=os.environ | ascii_only, capture_output=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b""), form
        assert done.stdout.isascii()
    assert "\N{EN DASH}" in (run / "report.html").read_text(encoding="utf-8")


def test_runs_whose_names_are_no_text_are_reported(tmp_path: Path) -> None:
    runs = [tmp_path / "run", Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))]
    for run in runs:
        write_run(run, "{kind: flat, hosts: 8}", "{kind: all_reduce, size: 1MB}", Textbook())
        write_result(load_run(run))
    for form in ("html", "md", "csv"):
        done = groundwire("report", *runs, "--format", form, "--out", tmp_path / form)
        assert (done.returncode, done.stderr) == (0, ""), form
    assert "\\udcff" in (tmp_path / "html").read_text(encoding="utf-8")


def test_a_current_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    """A guest's first process starts in it: 'No such file or directory', whatever was not there."""
    (tmp_path / "gone").mkdir()
    run = [sys.executable, "-m", "groundwire.cli", "run", str(ROOT / "topologies/two-hosts.yaml")]
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *run, "--out", str(tmp_path / "run")],
        cwd=tmp_path / "gone", env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: the current directory has been removed; change to another"
    )


def test_a_shell_without_standard_input_ends() -> None:
    """The thread that reads it died of that, and the shell waited for ever."""
    shell = f"{sys.executable} -m groundwire.cli shell topologies/two-hosts.yaml --kernel virtual"
    done = subprocess.run(
        ["sh", "-c", f"exec {shell} <&-"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(find_kernel() is None, reason="needs the virtual kernel (make setup)")
def test_a_sweep_of_two_at_once_has_the_runs_of_one_after_the_other(tmp_path: Path) -> None:
    """By the engine of studies; the directories are those of runs, with their pages."""
    axis = ("--set", "fabric.link.rate=5Gbps,10Gbps", "--set", "capture.points=[]")
    both = [tmp_path / "one", tmp_path / "at-once"]
    at_once: list[list[str]] = [[], ["--workers", "2"]]
    for out, more in zip(both, at_once, strict=True):
        options = ("--kernel", "virtual", "--json", "--out", str(out), *more)
        done = groundwire("sweep", "topologies/two-hosts.yaml", *axis, *options)
        assert done.returncode == 0, done.stderr
        assert [Path(case["run"]).name for case in json.loads(done.stdout)] == ["001", "002"]
    assert "2 of 2 jobs done" in done.stderr
    for name in ("001", "002"):
        assert result_of(both[0] / name) == result_of(both[1] / name)
        files = [{path.name for path in (out / name).iterdir()} for out in both]
        assert files[0] == files[1]
    assert sorted(path.name for path in both[1].iterdir()) == ["001", "002"]

"""setup.sh on machines that are not this one: the programs that it calls are stand-ins, which write
down what they were asked and answer as such a machine would."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.session.command import ROOT

_TOOLS = (
    *("bash", "cat", "chmod", "cut", "dirname", "env", "grep", "ln", "mkdir", "mktemp", "mv", "rm"),
    *("sha256sum", "sleep", "tail", "touch"),
)
# A machine's answers when nothing is missing but the virtual environment.
_USUAL = {
    "id": "echo 1000",
    "uname": "echo x86_64",
    "sudo": '[ "$1" = true ] || "$@"',
    "dpkg-query": "echo installed",
    "apt-get": "true",
    "apt-cache": "echo '  Candidate: 6.12.1'",
    "python3": 'if [ "$2" = venv ]; then mkdir -p "$3/bin"; '
    'for name in pip python groundwire; do ln -s "$(command -v "$name")" "$3/bin/$name"; done; fi',
    "pip": "true",
    "python": "false",  # PyTorch's index does not answer
    "groundwire": "true",
}


_FUNCTIONS = r"^stage\(\) .*?\}$|^last_line\(\) \{.*?^\}$"


def _as_from_a_terminal() -> None:
    """Take signals as usual: a process that ignores one passes that on, and a shell cannot trap it
    then."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Machine:
    """A clone, a home and a PATH. `calls` are the commands run so far, as one line each."""

    def __init__(self, directory: Path, programs: Mapping[str, str | None]) -> None:
        self._clone, self._bin = directory / "clone", directory / "bin"
        self._home, self._log = directory / "home", directory / "calls"
        self.temporary = directory / "tmp"
        for made in (self._clone, self._bin, self._home, self.temporary):
            made.mkdir(parents=True)
        for name in ("pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self._clone)
        self._script = self._clone / "setup.sh"
        # Kernel sources that this machine has installed are not that one's.
        self._script.write_text(
            (ROOT / "setup.sh").read_text().replace('"/usr/src/', f'"{directory}/src/')
        )
        for name in _TOOLS:
            found = shutil.which(name)
            assert found is not None, name
            (self._bin / name).symlink_to(found)
        for name, script in {**_USUAL, **programs}.items():
            if script is not None:
                path = self._bin / name
                path.write_text(f'#!/bin/bash\necho "{name} $*" >>{self._log}\n{script}\n')
                path.chmod(0o755)

    def start(self, purpose: str = "run", **environment: str) -> subprocess.Popen[str]:
        usual = {
            "PATH": str(self._bin),
            "HOME": str(self._home),
            "TMPDIR": str(self.temporary),
            "LC_ALL": "C",
        }
        return subprocess.Popen(
            [str(self._bin / "bash"), str(self._script), purpose],
            env=usual | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_as_from_a_terminal,
        )

    def setup(self, purpose: str = "run", **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(purpose, **environment)
        printed, said = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, printed, said)

    def calls(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def called(self) -> set[str]:
        """The programs of `calls`, but for a Python that is asked for its version."""
        return {call.split()[0] for call in self.calls() if not call.startswith("python3 -c ")}


@pytest.fixture
def archive(tmp_path: Path) -> dict[str, str]:
    """The kernel's source, by the variable that names it."""
    return {"GROUNDWIRE_KERNEL_SOURCE": str(tmp_path / "linux.tar.xz")}


def test_a_second_run_finds_everything_done(tmp_path: Path, archive: dict[str, str]) -> None:
    machine = Machine(tmp_path, {})
    first = machine.setup(**archive)
    assert first.returncode == 0, first.stderr
    assert any(call.startswith("pip install") for call in machine.calls())
    before = len(machine.calls())
    second = machine.setup(**archive)
    assert second.returncode == 0, second.stderr
    assert "[1/4] system packages: present" in second.stderr
    assert "[3/4] virtual environment: present" in second.stderr
    asks = ("python3 -c ", "python3 -m simulation.building")
    did = {c.split()[0] for c in machine.calls()[before:] if not c.startswith(asks)}
    assert did <= {"uname", "dpkg-query", "groundwire"}  # these only ask


def test_what_docs_use_is_installed_in_the_versions_that_are_known(
    tmp_path: Path, archive: dict[str, str]
) -> None:
    machine = Machine(tmp_path, {})
    assert machine.setup(**archive).returncode == 0
    [call] = [call for call in machine.calls() if call.startswith("pip install")]
    assert call.endswith(" -c constraints.txt -e .[remote,studies,tables]")


def test_an_environment_for_tests_serves_runs(tmp_path: Path, archive: dict[str, str]) -> None:
    machine = Machine(tmp_path, {})
    assert machine.setup("test", **archive).returncode == 0
    assert "[3/4] virtual environment: present" in machine.setup(**archive).stderr


def test_a_failed_step_names_the_command_and_the_fix(
    tmp_path: Path, archive: dict[str, str]
) -> None:
    broken = '[ "$1" != install ] || { echo "E: Unable to locate package bison"; exit 100; }'
    machine = Machine(tmp_path, {"dpkg-query": "false", "apt-get": broken})
    done = machine.setup(**archive)
    assert done.returncode == 1
    assert "E: Unable to locate package bison" in done.stderr
    assert "this command failed: sudo env DEBIAN_FRONTEND=noninteractive apt-get" in done.stderr
    assert "run it by hand" in done.stderr


def test_a_broken_list_of_somebody_elses_stops_nothing(
    tmp_path: Path, archive: dict[str, str]
) -> None:
    machine = Machine(tmp_path, {"dpkg-query": "false", "apt-get": '[ "$1" != update ]'})
    done = machine.setup(**archive)
    assert done.returncode == 0, done.stderr
    assert "going on with the lists that can be had" in done.stderr


@pytest.mark.parametrize("sudo", [None, "exit 1"], ids=["no sudo", "sudo refused"])
def test_without_root_it_says_what_root_must_do(
    tmp_path: Path, archive: dict[str, str], sudo: str | None
) -> None:
    machine = Machine(tmp_path, {"dpkg-query": "false", "sudo": sudo})
    done = machine.setup(**archive)
    assert done.returncode == 1
    assert "have root run this" in done.stderr
    assert "apt-get install" in done.stderr
    assert not [call for call in machine.calls() if call.startswith("apt-get install")]


def test_another_processor_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"uname": "echo aarch64"})
    done = machine.setup()
    assert done.returncode == 1
    assert "for x86-64 only, and this machine is aarch64" in done.stderr
    assert "groundwire run --kernel native" in done.stderr
    assert {call.split()[0] for call in machine.calls()} == {"uname"}


def test_without_apt_the_packages_are_named(tmp_path: Path, archive: dict[str, str]) -> None:
    machine = Machine(tmp_path, {"dpkg-query": "false", "apt-get": None})
    done = machine.setup(**archive)
    assert done.returncode == 1
    assert "no apt-get" in done.stderr
    assert "flex bison" in done.stderr


def test_what_only_tests_want_may_be_missing(tmp_path: Path, archive: dict[str, str]) -> None:
    without = 'case "$2" in chromium) ;; *) echo "  Candidate: 1" ;; esac'
    lacking = 'case "$4" in chromium) exit 1 ;; *) echo installed ;; esac'
    machine = Machine(tmp_path, {"dpkg-query": lacking, "apt-cache": without})
    done = machine.setup("test", **archive)
    assert done.returncode == 0, done.stderr
    assert "chromium is not offered here" in done.stderr
    again = machine.setup("test", **archive)
    assert "[1/4] system packages: present" in again.stderr


def test_what_apt_offers_is_found_whatever_it_says_after(
    tmp_path: Path, archive: dict[str, str]
) -> None:
    """It lists versions after the candidate, in the user's language; we took such packages for not
    offered."""
    lacking = 'case "$4" in chromium) exit 1 ;; *) echo installed ;; esac'
    slow = """if [ "$LC_ALL" = C ]; then echo '  Candidate: 1'; else echo '  Kandidat: 1'; fi
        sleep 0.3; echo '  Version table:'"""
    machine = Machine(tmp_path, {"dpkg-query": lacking, "apt-cache": slow})
    done = machine.setup("test", LC_ALL="de_DE.UTF-8", **archive)
    assert done.returncode == 0, done.stderr
    assert "not offered" not in done.stderr
    assert any(c.startswith("apt-get install") and "chromium" in c for c in machine.calls())


def test_another_systems_source_is_not_taken(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {"apt-cache": "echo '  Candidate: (none)'", "apt-get": "exit 100"})
    done = machine.setup()
    assert done.returncode == 1
    assert "this system has no linux-source-6.12" in done.stderr
    assert "GROUNDWIRE_KERNEL_SOURCE" in done.stderr


def test_pytorchs_index_is_asked_first(tmp_path: Path, archive: dict[str, str]) -> None:
    machine = Machine(tmp_path, {"python": "true"})
    assert machine.setup(**archive).returncode == 0
    torch = [call for call in machine.calls() if call.startswith("pip install") and "torch" in call]
    assert torch and "--index-url https://download.pytorch.org/whl/cpu torch==" in torch[0]


def test_a_mirror_that_fails_is_named(tmp_path: Path, archive: dict[str, str]) -> None:
    machine = Machine(tmp_path, {"pip": "exit 1"})
    done = machine.setup(GROUNDWIRE_TORCH_INDEX="https://mirror.example/simple", **archive)
    assert done.returncode == 1
    assert "check GROUNDWIRE_TORCH_INDEX (here: https://mirror.example/simple)" in done.stderr


_HELD = "Could not get lock {}. It is held by process 7 (unattended-upgr)"


@pytest.mark.parametrize("command", ["update", "install"])
def test_an_apt_that_gives_up_at_a_lock_is_started_again(
    tmp_path: Path, archive: dict[str, str], command: str
) -> None:
    """apt has no patience of its own for the locks of the lists and of the archives."""
    held = _HELD.format("/var/cache/apt/archives/lock")
    busy = f"""if [ "$1" = {command} ] && [ ! -e {tmp_path}/free ]; then
        touch {tmp_path}/free; echo "E: {held}"; exit 100; fi"""
    machine = Machine(tmp_path, {"dpkg-query": "false", "apt-get": busy})
    done = machine.setup(**archive)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("another apt is at work") == 1
    assert "/var/cache/apt/archives/lock. It is held by process 7 (unattended-upgr)" in done.stderr
    assert len([call for call in machine.calls() if call.startswith(f"apt-get {command}")]) == 2
    assert "failed" not in done.stderr


def test_an_apt_that_waits_is_told_of(tmp_path: Path, archive: dict[str, str]) -> None:
    waiting = f"Waiting for cache lock: {_HELD.format('/var/lib/dpkg/lock-frontend')}..."
    slow = f"""[ "$1" != install ] || {{ for i in 1 2 3; do echo "{waiting}"; sleep 1; done; }}"""
    machine = Machine(tmp_path, {"dpkg-query": "false", "apt-get": slow})
    done = machine.setup(**archive)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("another apt is at work") == 1
    assert "/var/lib/dpkg/lock-frontend. It is held by process 7 (unattended-upgr)\n" in done.stderr


def test_every_apt_waits_for_another(tmp_path: Path) -> None:
    """Also those that fetch the kernel's source from Debian."""
    none = "case \"$2\" in linux-*) echo '  Candidate: (none)' ;; *) echo '  Candidate: 1' ;; esac"
    machine = Machine(tmp_path, {"dpkg-query": "false", "apt-cache": none})
    machine.setup()
    calls = [call for call in machine.calls() if call.startswith("apt-get")]
    for command in ("update", "install", "download"):
        assert any(command in call for call in calls), command
    assert all("-o DPkg::Lock::Timeout=600" in call for call in calls)


def _halves(tmp_path: Path, pip: str, kernel: str) -> Machine:
    """`pip` and the kernel's build do this; each can `touch` a file that the other sees."""
    usual = str(_USUAL["python3"])
    build = f"""if [ "$2" = emulator.virtual.building ]; then {kernel}; fi"""
    return Machine(tmp_path, {"pip": pip, "python3": f"{usual}\n{build}"})


def _begun(*files: Path) -> None:
    deadline = time.monotonic() + 60
    while not all(file.exists() and file.read_text() for file in files):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def test_packages_and_kernel_are_made_side_by_side(tmp_path: Path, archive: dict[str, str]) -> None:
    """Each waits here for the other to begin. The kernel does not wait for the packages, so it is
    built with the system's Python."""
    meet = "touch {mine}; until [ -e {other} ]; do sleep 0.05; done"
    pip, kernel = tmp_path / "pip", tmp_path / "kernel"
    machine = _halves(
        tmp_path, meet.format(mine=pip, other=kernel), meet.format(mine=kernel, other=pip)
    )
    done = machine.setup(**archive)
    assert done.returncode == 0, done.stderr
    assert re.search(r"s: python: done$", done.stderr, re.MULTILINE)
    assert re.search(r"s: kernel: done$", done.stderr, re.MULTILINE)
    assert list(machine.temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "stage", "shown"),
    [
        ("Collecting numpy\n", "installing packages", "installing packages: Collecting numpy"),
        ("Successfully installed numpy-2\n", "compiling Python", "compiling Python"),
        ("Collecting x\nWARNING: Running pip as root\n\n", "", "Collecting x"),
        ("", "", "at work"),
    ],
)
def test_the_stage_of_a_job_stands_beside_its_last_line(
    tmp_path: Path, said: str, stage: str, shown: str
) -> None:
    functions = re.findall(_FUNCTIONS, (ROOT / "setup.sh").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "python.log").write_text(said)
    script = "\n".join(("set -euo pipefail", *functions, f"log={tmp_path}/python.log"))
    script += f"\n{f'stage {stage!r}' if stage else ''}\nlast_line {tmp_path}/python.log"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


@pytest.mark.parametrize("failing", ["python", "kernel"])
def test_the_half_that_fails_is_named_and_the_other_stopped(
    tmp_path: Path, archive: dict[str, str], failing: str
) -> None:
    pid = tmp_path / "pid"
    fails = f"until [ -s {pid} ]; do sleep 0.05; done; echo what is wrong; exit 1"
    works = f"echo half way; echo $$ >{pid}; exec sleep 1000"
    pip, kernel = (fails, works) if failing == "python" else (works, fails)
    machine = _halves(tmp_path, pip, kernel)
    done = machine.setup(**archive)
    other, command = {
        "python": ("kernel", ".venv/bin/pip install"),
        "kernel": ("python", "python3 -m emulator.virtual.building"),
    }[failing]
    assert done.returncode == 1
    assert "what is wrong\n" in done.stderr
    assert f"this command failed: {command}" in done.stderr
    assert f"the other half, {other}, is stopped" in done.stderr
    assert not _runs(pid)
    (logs,) = machine.temporary.iterdir()
    assert f"everything that was said is in {logs}" in done.stderr
    assert "what is wrong\n" in (logs / f"{failing}.log").read_text()
    assert "half way\n" in (logs / f"{other}.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_both_halves(
    tmp_path: Path, archive: dict[str, str], number: signal.Signals
) -> None:
    pids = tmp_path / "pip", tmp_path / "kernel"
    pip, kernel = (f"echo $$ >{pid}; exec sleep 1000" for pid in pids)
    machine = _halves(tmp_path, f"mktemp; {pip}", kernel)  # as pip does
    process = machine.start(**archive)
    _begun(*pids)
    os.killpg(process.pid, number)  # as a terminal does
    _, said = process.communicate(timeout=60)
    assert process.returncode == -number
    assert said.endswith("setup: interrupted; the next one goes on from here\n")
    assert not any(_runs(pid) for pid in pids)
    assert list(machine.temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("offered", "wanted"),
    [("1", ["bison", "linux-source-6.12"]), ("(none)", ["bison"])],
    ids=["Debian", "another system"],
)
def test_missing_packages_are_named_and_nothing_is_done(
    tmp_path: Path, offered: str, wanted: list[str]
) -> None:
    """For the playbook, which installs them with the password that it was given."""
    lacking = 'case "$4" in bison) exit 1 ;; *) echo installed ;; esac'
    machine = Machine(
        tmp_path, {"dpkg-query": lacking, "apt-cache": f"echo '  Candidate: {offered}'"}
    )
    done = machine.setup("missing")
    assert done.returncode == 0, done.stderr
    named = done.stdout.split()
    assert [name for name in named if name != "debian-archive-keyring"] == wanted
    assert machine.called() <= {"uname", "dpkg-query", "apt-cache"}


_OLD = 'case "$1" in -c) exit 1 ;; --version) echo Python 3.10.12 ;; *) exit 2 ;; esac'


def test_a_system_whose_python_is_too_old_gets_the_one_that_it_has_beside_it(
    tmp_path: Path, archive: dict[str, str]
) -> None:
    """As Ubuntu 22.04, whose python3 is 3.10."""
    without = 'case "$4" in python3.11-venv) exit 1 ;; *) echo installed ;; esac'
    machine = Machine(tmp_path / "bare", {"python3": _OLD, "dpkg-query": without})
    assert machine.setup("missing", **archive).stdout == "python3.11-venv\n"
    none = machine.setup("python")
    assert (none.returncode, none.stdout) == (1, "")
    assert "Python 3.11 or later with venv is needed; found Python 3.10.12" in none.stderr

    offered = "echo '  Candidate: (none)'"
    programs = {"python3": _OLD, "dpkg-query": without, "apt-cache": offered}
    refused = Machine(tmp_path / "older", programs).setup(**archive)
    assert refused.returncode == 1
    assert "Python 3.11 or later with venv is needed" in refused.stderr

    has = {"python3": _OLD, "python3.11": _USUAL["python3"]}
    machine = Machine(tmp_path / "ready", has)
    assert machine.setup("missing", **archive).stdout == ""
    assert machine.setup("python").stdout == "python3.11\n"
    done = machine.setup(**archive)
    assert done.returncode == 0, done.stderr
    assert any(call.startswith("python3.11 -m venv") for call in machine.calls())


def test_the_source_alone_can_be_had(tmp_path: Path, archive: dict[str, str]) -> None:
    machine = Machine(tmp_path, {})
    done = machine.setup("source", **archive)
    assert done.returncode == 0, done.stderr
    assert "[2/4] kernel source" in done.stderr
    assert machine.called() == {"uname", "dpkg-query"}

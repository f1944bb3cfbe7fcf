"""The doctor; needs no root."""

from __future__ import annotations

import errno
import json
import re
import tempfile
import tomllib
from pathlib import Path

import pytest

from emulator.doctor import doctor as subject
from emulator.doctor import virtual_kernel
from emulator.linux.capabilities import QDISCS, KernelCapabilities, kernel_capabilities
from groundwire.commands.doctor import doctor

_FULL = KernelCapabilities(
    qdiscs=frozenset(QDISCS),
    devices=frozenset({"veth", "ifb"}),
    redirect=True,
    classifiers=True,
    sysctls=frozenset({"ipv4/fib_multipath_hash_policy", "ipv4/fib_multipath_hash_seed"}),
    congestion_controls=frozenset({"cubic", "dctcp", "bbr"}),
)
_NOTHING = KernelCapabilities(refused="this machine gives users none")


@pytest.fixture
def no_virtual_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_kernel, "find_kernel", lambda: None)
    monkeypatch.setattr(virtual_kernel, "find_source", lambda: None)


def _as(monkeypatch: pytest.MonkeyPatch, found: KernelCapabilities, uid: int) -> None:
    monkeypatch.setattr(subject, "kernel_capabilities", lambda: found)
    monkeypatch.setattr("os.geteuid", lambda: uid)


def _told(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    doctor(as_json=True)
    return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def test_every_missing_thing_has_a_cost_and_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    code = doctor(as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert code == (0 if told["healthy"] else 1)
    for check in told["checks"]:
        assert check["found"] in (True, False, None)
        assert check["detail"]
        assert check["cost"]
        assert check["remedy"]
    names = {check["name"] for check in told["checks"]}
    assert names >= {
        *("root", "network namespaces", "veth", "ifb", "netem", "red", "dctcp", "plug", "drr"),
        *("eBPF classifiers", "redirect to ifb", "Soft-RoCE in namespaces"),
        *("ECMP by ports", "ECMP hash seed", "memory", "processor cores", "mnexec"),
        *("clock source", "cgroups", "virtual kernel", "ptrace", "seccomp filters", "torch"),
    }


@pytest.mark.usefixtures("no_virtual_kernel")
def test_no_kernel_for_the_main_job_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _as(monkeypatch, _NOTHING, 1000)
    assert doctor(as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert "virtual kernel" in told["main_job"]["virtual_lacks"]
    assert {"root", "netem"} <= set(told["main_job"]["native_lacks"])
    netem = next(c for c in told["checks"] if c["name"] == "netem")
    assert netem["found"] is None
    assert netem["detail"] == "not asked: this machine gives users none"


@pytest.mark.usefixtures("no_virtual_kernel")
def test_a_full_native_kernel_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    _as(monkeypatch, _FULL, 0)
    diagnosis = subject.diagnose()
    assert diagnosis.native == ()
    assert diagnosis.virtual
    assert diagnosis.healthy


@pytest.mark.usefixtures("no_virtual_kernel")
def test_netem_missing_costs_the_native_main_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without = KernelCapabilities(**{**vars(_FULL), "qdiscs": _FULL.qdiscs - {"netem"}})
    _as(monkeypatch, without, 0)
    assert doctor(as_json=False) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "main job on the native kernel: no, it lacks netem" in out
    assert "sch_netem" in out


def test_the_kernel_is_asked_and_not_guessed() -> None:
    found = kernel_capabilities()
    assert found.refused or {"reno"} <= found.congestion_controls
    assert "gwport" not in found.qdiscs, "our own qdisc exists in the virtual kernel only"


def test_a_cache_folder_that_cannot_be_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    told = _told(capsys)
    assert told["cache folder"]["found"] is False
    folder = str(tmp_path / "file" / "groundwire" / "kernel")
    assert folder in str(told["cache folder"]["detail"])
    assert told["virtual kernel"]["detail"] == "cannot be built"


def test_a_user_without_a_home_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Among the other rows: it was the only thing said."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    told = _told(capsys)
    assert told["cache folder"]["found"] is False
    assert "set HOME, or XDG_CACHE_HOME" in str(told["cache folder"]["detail"])
    assert told["virtual kernel"]["detail"] == "cannot be built"


def test_a_wrong_source_variable_is_told_in_its_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GROUNDWIRE_KERNEL_SOURCE", "/no/such/archive")
    told = _told(capsys)
    assert told["kernel source"]["found"] is False
    assert "/no/such/archive: no such file" in str(told["kernel source"]["detail"])
    assert told["virtual kernel"]["found"] is False


def test_a_machine_without_a_temporary_directory_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guest memory lies in /dev/shm then, where that has the room."""

    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    told = _told(capsys)
    assert told["temporary directory"]["found"] is False
    assert told["temporary directory"]["detail"] == (
        "No usable temporary directory found in ['/tmp']"
    )
    assert told["guest memory"]["detail"] == "/dev/shm" or not told["guest memory"]["found"]


def test_a_processor_without_xsave_costs_wall_time_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr("emulator.virtual.host.features._CPUINFO", cpuinfo)
    cpuinfo.write_text("model name\t: QEMU Virtual CPU version 2.5+\nflags\t\t: fpu xsaveopt\n")
    row = _told(capsys)["XSAVE"]
    assert row["found"] is False
    assert "half the speed" in str(row["cost"])
    cpuinfo.write_text("flags\t\t: fpu xsave sse2\n")
    assert _told(capsys)["XSAVE"]["found"] is True


def test_packages_that_runs_need_come_with_an_installation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """pyroute2 was asked for when tests alone had it. Extras are told with their line."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[^\w-]", each)[0].replace("-", "_") for each in requirements}

    installed = names(project["dependencies"])
    rows = [row for row in _told(capsys).values() if row["group"] == "python packages"]
    asked = {str(row["name"]): str(row["remedy"]) for row in rows}
    beyond = set(asked) - installed
    assert set(asked) & installed
    for package in beyond:
        (extra,) = re.findall(r"groundwire\[(\w+)\]", asked[package])
        assert package in names(project["optional-dependencies"][extra])

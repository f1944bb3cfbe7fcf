"""`groundwire shell` on the virtual kernel, from the command line; needs no root."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.virtual.building.build import find_kernel

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.skipif(not shutil.which("ping"), reason="needs ping (iputils-ping)"),
    pytest.mark.skipif(find_kernel() is None, reason="needs the virtual kernel (make setup)"),
]


def _shell(*arguments: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "groundwire.cli", "shell", *arguments, "--kernel", "virtual"],
        cwd=ROOT,
        input=typed,
        capture_output=True,
        text=True,
        timeout=1200,
    )


def test_commands_run_in_exact_virtual_time(tmp_path: Path) -> None:
    done = _shell(
        "topologies/two-hosts.yaml", "--command", "pingall", "--command", "h0 ping -c 3 -i 0.2 h1",
        "--command", "h0 echo called $(hostname), other $(getent hosts h1 | head -n 1)",
        "--command", "h0 echo sees $(ls /sys/class/net | xargs), by $(getent hosts h''1)",
        "--command", f"h0 touch {tmp_path}/written", "--writable", str(tmp_path),
        "--memory", "900MB",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "written").exists()
    # Mininet puts a node's address in place of its name where that is a word of its own.
    assert re.search(r"called h0, other 10\.0\.0\.3 +(10\.0\.0\.3|h1)", done.stdout)
    # A host has a sysfs of its own, and addresses of IPv4.
    assert re.search(r"sees h0-eth0 lo, by 10\.0\.0\.3 +h1", done.stdout)
    assert "0% dropped (2/2 received)" in done.stdout
    # Four times 1 us and (98 + 24) bytes at 10 Gb/s make 4.39 us; ping's clock has whole ones.
    times = [line.split("time=")[1] for line in done.stdout.splitlines() if "time=" in line]
    assert len(times) == 3
    assert set(times) <= {"0.004 ms", "0.005 ms"}


@pytest.mark.parametrize(
    ("command", "said"), [("nosuch", "Unknown command: nosuch"), ("h0 false", "")]
)
def test_a_failed_command_is_exit_code_1(command: str, said: str) -> None:
    done = _shell("topologies/two-hosts.yaml", "--command", command, "--command", "h0 true")
    assert done.returncode == 1
    assert said in done.stdout


def test_typed_commands_are_answered() -> None:
    done = _shell("topologies/two-hosts.yaml", typed="nodes\nh0 echo typed by hand\n")
    assert done.returncode == 0, done.stderr
    assert "h0 h1 s0" in done.stdout
    assert "typed by hand" in done.stdout

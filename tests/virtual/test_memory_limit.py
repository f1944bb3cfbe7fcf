"""Guests keep within the limits of control groups: those of containers, batch systems and users."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from emulator.virtual.memory.cgroup_limit import MemoryLimit, tightest_memory_limit

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20


def host(
    root: Path,
    cgroup: Sequence[str],
    mounts: Sequence[tuple[str, str, str, str]],
    files: Mapping[str, object],
) -> Path:
    """A file system that looks like a host's: /proc/self/cgroup, its mounts, the groups' files."""
    proc = root / "proc/self"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text("".join(f"{line}\n" for line in cgroup))
    (proc / "mountinfo").write_text(
        "".join(
            f"{30 + i} 23 0:{i} {top} {point} rw,relatime shared:9 - {kind} {kind} {options}\n"
            for i, (top, point, kind, options) in enumerate(mounts)
        )
    )
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


V2 = ("/", "/sys/fs/cgroup", "cgroup2", "rw")
V1 = ("/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory")
NO_LIMIT = 9223372036854771712


def test_a_user_of_a_shared_machine(tmp_path: Path) -> None:
    """systemd: the limit is the user's slice's, two levels up; caches of files are to be had."""
    slice_ = "sys/fs/cgroup/user.slice/user-1000.slice"
    session = f"{slice_}/session-3.scope"
    root = host(
        tmp_path,
        ["0::/user.slice/user-1000.slice/session-3.scope"],
        [V2],
        {
            f"{session}/memory.max": "max",
            f"{session}/memory.high": "max",
            f"{session}/memory.current": 100 * MIB,
            f"{slice_}/memory.max": 2000 * MIB,
            f"{slice_}/memory.high": 1500 * MIB,
            f"{slice_}/memory.current": 900 * MIB,
            f"{slice_}/memory.stat": f"anon 1\nactive_file {50 * MIB}\ninactive_file {70 * MIB}",
        },
    )
    assert tightest_memory_limit(root) == MemoryLimit(
        "/user.slice/user-1000.slice", 1500 * MIB, (1500 - 900 + 120) * MIB
    )


def test_the_group_that_leaves_least_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/a/memory.max": 4000 * MIB,
        "sys/fs/cgroup/a/memory.current": 3900 * MIB,
        "sys/fs/cgroup/a/b/memory.max": 500 * MIB,
        "sys/fs/cgroup/a/b/memory.current": 10 * MIB,
    }
    found = tightest_memory_limit(host(tmp_path, ["0::/a/b"], [V2], files))
    assert found == MemoryLimit("/a", 4000 * MIB, 100 * MIB)


@pytest.mark.parametrize("path", ["/", "/../../machine.slice/elsewhere"])
def test_a_container_sees_its_own_group_as_the_top(tmp_path: Path, path: str) -> None:
    files = {
        "sys/fs/cgroup/memory.max": 1000 * MIB,
        "sys/fs/cgroup/memory.current": 1001 * MIB,
    }
    found = tightest_memory_limit(host(tmp_path, [f"0::{path}"], [V2], files))
    assert found == MemoryLimit("/", 1000 * MIB, 0)


def test_version_1_with_others_beside_it(tmp_path: Path) -> None:
    """Docker of old: the path is the host's, of which the mount shows what is below the container;
    "no limit" is a number."""
    mounts = [
        ("/", "/sys/fs/cgroup/cpu", "cgroup", "rw,cpu,cpuacct"),
        ("/docker/4e88", "/sys/fs/cgroup/memory", "cgroup", "rw,memory"),
        ("/", "/sys/fs/cgroup/unified", "cgroup2", "rw"),
    ]
    groups = ["4:memory:/docker/4e88/job", "3:cpu,cpuacct:/docker/4e88", "0::/"]
    files = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 800 * MIB,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": 300 * MIB,
        "sys/fs/cgroup/memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {5 * MIB}",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": NO_LIMIT,
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": 200 * MIB,
    }
    found = tightest_memory_limit(host(tmp_path, groups, mounts, files))
    assert found == MemoryLimit("/", 800 * MIB, 505 * MIB)


def test_a_path_that_the_container_does_not_see(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 800 * MIB,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": 300 * MIB,
    }
    found = tightest_memory_limit(host(tmp_path, ["4:memory:/docker/4e88"], [V1], files))
    assert found == MemoryLimit("/", 800 * MIB, 500 * MIB)


def test_hosts_without_limits(tmp_path: Path) -> None:
    assert tightest_memory_limit(tmp_path) is None
    unlimited = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": 300 * MIB,
    }
    assert tightest_memory_limit(host(tmp_path, ["4:memory:/"], [V1], unlimited)) is None


@contextmanager
def limited_group(limit_bytes: int) -> Iterator[Path]:
    """The cgroup.procs of a new group with that limit."""
    top = Path("/sys/fs/cgroup")
    top = top / "memory" if (top / "memory").is_dir() else top
    group = top / f"groundwire-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if top.name == "memory" else "memory.max"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs a control group of its own (root, cgroupfs mounted): {error}")
    try:
        if not (group / limit).exists():
            pytest.skip(f"needs control groups that limit memory: no {group / limit}")
        (group / limit).write_text(str(limit_bytes))
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def test_a_guest_that_its_group_has_no_room_for_is_refused() -> None:
    with limited_group(700 * MIB) as procs:
        script = 'echo $$ > "$0" && exec "$@"'
        command = [sys.executable, "-m", "emulator.virtual", "--mem", "1GB", "--", "true"]
        done = subprocess.run(
            ["sh", "-c", script, str(procs), *command], cwd=ROOT, capture_output=True, text=True
        )
    assert done.returncode == 1
    assert "guest memory of 1,000 MB refused: control group /groundwire-test-" in done.stderr
    assert "left of its limit of 734 MB" in done.stderr

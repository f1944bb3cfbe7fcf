"""The pause controller's process, started by whatever process."""

import shutil
import subprocess
import sys

import pytest

_AS_ITS_PARENT = """
import json, os, subprocess, sys
counters = os.memfd_create("counters")
os.ftruncate(counters, 1 << 16)
controller = subprocess.Popen(
    [sys.executable, "-c", "from emulator.switches.pause_controller import main; main()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[counters],
)
orders = {"descriptor": counters, "entries": 8, "period_ns": 10**6, "plugs": []}
controller.stdin.write(json.dumps(orders) + "\\n")
controller.stdin.flush()
print(os.getpid(), controller.stdout.readline().strip(), flush=True)
controller.kill()
"""
_IN_A_CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork")


def test_starts_where_its_parent_is_the_first_process_of_a_container() -> None:
    if shutil.which("unshare") is None or subprocess.run([*_IN_A_CONTAINER, "true"]).returncode:
        pytest.skip("this machine makes no process namespaces for users (unshare)")
    command = [*_IN_A_CONTAINER, sys.executable, "-c", _AS_ITS_PARENT]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert said.stdout == "1 watching\n", said.stderr

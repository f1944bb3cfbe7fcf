"""`groundwire exec --until T --shell`: a run stands still at T, is looked at, and goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.session.command import ROOT

_FABRIC = "fabric: {kind: flat, hosts: 2, link: {rate: 25Gbps, delay: 1us, mtu: 9000}}\n"
_TALKS = """
import os, socket, time
peer = socket.socket()
if os.environ["RANK"] == "0":
    peer.bind(("", 7000)); peer.listen()
    other, _ = peer.accept()
    for n in range(10):
        other.sendall(b"%03d" % n); time.sleep(0.1)
else:
    time.sleep(0.05)
    peer.connect((os.environ["MASTER_ADDR"], 7000))
    while data := peer.recv(3):
        print(time.monotonic_ns(), peer.getsockname()[1], data, flush=True)
"""
# The clock of the guest begins at 1,767,225,600 s, and programs are started at 10.5 s.
_COMMANDS = """\
date +%s.%N
ss -tnH
host h1
hostname; pkill python3; sleep 1; ss -tnH
host nowhere
true
go
date
"""


def _groundwire(
    place: Path, *arguments: str, typed: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "groundwire.cli", "exec", "two.yaml", *arguments],
        cwd=place, env=os.environ | {"PYTHONPATH": str(ROOT)}, input=typed,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_run_that_was_looked_at_has_the_bits_of_one_that_was_not(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(_FABRIC)
    (tmp_path / "talks.py").write_text(_TALKS)
    program = ("--", "python3", "-S", "talks.py")
    plain = _groundwire(tmp_path, "--out", "plain", *program)
    assert plain.returncode == 0, plain.stderr
    looked = _groundwire(
        tmp_path, "--until", "550ms", "--shell", "--out", "looked", *program, typed=_COMMANDS
    )
    assert looked.returncode == 0, looked.stderr
    said = looked.stdout.splitlines()
    assert said[0] == "1767225611.050000000"
    assert "10.0.0.2:7000" in said[1] and said[1].startswith("ESTAB")
    assert said[2] == "h1"  # and after the end of the program in that copy, no connection
    assert said[3] == "nowhere: no such node; the fabric has h0, h1, s0"
    assert "date" not in looked.stdout and len([x for x in said if x[:4] == "1767"]) == 1
    for name in ("links.jsonl", "ranks/001.out", "ranks/001.jsonl"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "looked" / name).read_bytes()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--until", "1s"), "--until TIME and --shell: expected both"),
        (("--until", "1s", "--shell", "--kernel", "native"), "expected the virtual kernel"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    (tmp_path / "two.yaml").write_text(_FABRIC)
    refused = _groundwire(tmp_path, *options, "--", "true")
    assert refused.returncode != 0
    assert says in refused.stderr

"""Programs that are not ours: what they find, what comes back, and how they fail."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from groundwire.commands.execute import execute as exec_command
from groundwire.commands.run import KernelChoice
from tests.exec.programs import FABRIC, execute

_LOOK = """
import json, os, socket, subprocess, sys, time

rank = int(os.environ["RANK"])
home = os.path.expanduser("~")
cache = os.path.join(home, ".groundwire-test")
os.makedirs(cache, exist_ok=True)
with open(os.path.join(cache, str(rank)), "w") as file:
    file.write("cached")
with open(f"/dev/shm/of-{rank}", "w") as file:
    file.write("mine")
with open("/tmp/groundwire-test-state", "w") as file:
    file.write(str(rank))
print("rank", rank, "speaks", flush=True)
print("and warns", file=sys.stderr)
peers = {name: socket.gethostbyname(name) for name in ("h0", "h1", "h2", "s0")}
server = None
if rank == 0:
    server = socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    heard = sorted(server.accept()[0].makefile().readline() for _ in range(2))
else:
    time.sleep(0.01)
    with socket.create_connection(("h0", 29500)) as to:
        to.sendall(f"{socket.gethostname()}\\n".encode())
    heard = []
found = {
    "heard": heard, "hostname": socket.gethostname(), "peers": peers, "stdin": sys.stdin.read(),
    "own": socket.gethostbyname(socket.gethostname()), "argv": sys.argv[1:], "cwd": os.getcwd(),
    "environment": dict(os.environ), "data": open("data.txt").read(), "python": sys.executable,
    "ipc": os.readlink("/proc/self/ns/ipc"), "shared": os.listdir("/dev/shm"),
    "looked_up": subprocess.check_output(["getent", "hosts", "h0"], text=True).split(),
    "speed": open(f"/sys/class/net/h{rank}-eth0/speed").read(), "cached": os.listdir(cache),
    "temporary": open("/tmp/groundwire-test-state").read(),
}
with open(f"found-{rank}.json", "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run of a program that looks about; its run directory, and what was printed."""
    home = tmp_path_factory.mktemp("home")
    (home / "fabric.yaml").write_text(FABRIC)
    (home / "look.py").write_text(_LOOK)
    (home / "data.txt").write_text("from home")
    done = execute(
        home, "fabric.yaml", "--kernel", "virtual", "--out", "run", "-x", "COLOUR=green",
        "--", "python", "look.py", "--lr", "0.1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return home / "run", done.stdout, done.stderr


def _found(run: Path, rank: int) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "work" / f"found-{rank}.json").read_text())
    return found


def test_what_no_row_explains_is_told_with_its_share(looked: tuple[Path, str, str]) -> None:
    notes = json.loads((looked[0] / "result.json").read_text())["notes"]
    (note,) = [one for one in notes if "have no rows" in one]
    assert note.startswith("6 B, 100.00% of all payload between ranks") and "29500" in note


def test_each_rank_is_a_process_on_a_host_of_its_own(looked: tuple[Path, str, str]) -> None:
    run = looked[0]
    addresses = [f"10.0.0.{2 + rank}" for rank in range(3)]
    for rank in range(3):
        found = _found(run, rank)
        variables = found["environment"]
        assert isinstance(variables, dict)
        expected = {
            "RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": str(rank), "GROUP_WORLD_SIZE": "3", "MASTER_ADDR": addresses[0],
            "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": f"h{rank}-eth0", "COLOUR": "green",
        }  # fmt: skip
        assert {name: variables[name] for name in expected} == expected
        assert found["hostname"] == f"h{rank}" and found["own"] == addresses[rank]
        assert found["peers"] == {
            "h0": addresses[0], "h1": addresses[1], "h2": addresses[2], "s0": "10.0.0.1",
        }  # fmt: skip
        # As in MASTER_ADDR=$(getent hosts h0 | cut -d " " -f 1).
        assert found["looked_up"] == [addresses[0], "h0"]
        assert found["argv"] == ["--lr", "0.1"] and found["stdin"] == ""
    assert _found(run, 0)["heard"] == ["h1\n", "h2\n"]


def test_hosts_share_no_memory(looked: tuple[Path, str, str]) -> None:
    """Libraries such as UCX would send by it what is to go over the fabric."""
    found = [_found(looked[0], rank) for rank in range(3)]
    assert [each["shared"] for each in found] == [["of-0"], ["of-1"], ["of-2"]]
    assert len({str(each["ipc"]) for each in found}) == 3


def test_hosts_share_no_temporary_files(looked: tuple[Path, str, str]) -> None:
    """Ray keeps a node's state in /tmp, servers the sockets of their ports."""
    assert [_found(looked[0], rank)["temporary"] for rank in range(3)] == ["0", "1", "2"]


def test_home_is_writable_and_what_is_written_stays_in_the_run(
    looked: tuple[Path, str, str],
) -> None:
    found = _found(looked[0], 0)
    assert isinstance(found["cached"], list)
    assert sorted(found["cached"]) == ["0", "1", "2"]  # one home for all hosts
    kept = looked[0] / "home" / ".groundwire-test"
    assert {path.name: path.read_text() for path in kept.iterdir()} == dict.fromkeys(
        "012", "cached"
    )
    assert not (Path.home() / ".groundwire-test").exists()


def test_a_port_says_its_rate(looked: tuple[Path, str, str]) -> None:
    """As ethtool has it, in Mb/s, by which libraries choose how to send."""
    assert [_found(looked[0], rank)["speed"] for rank in range(3)] == ["100000\n"] * 3


def test_files_are_seen_and_what_is_written_comes_back(looked: tuple[Path, str, str]) -> None:
    run = looked[0]
    assert _found(run, 2)["data"] == "from home"
    assert sorted(path.name for path in (run / "work").iterdir()) == [
        f"found-{rank}.json" for rank in range(3)
    ]


def test_output_is_kept_by_rank_and_that_of_rank_0_is_shown(
    looked: tuple[Path, str, str],
) -> None:
    run, stdout, stderr = looked
    for rank in range(3):
        assert (run / "ranks" / f"{rank:03d}.out").read_text() == f"rank {rank} speaks\n"
        assert (run / "ranks" / f"{rank:03d}.err").read_text() == "and warns\n"
    assert "rank 0 speaks\n" in stdout and "rank 1 speaks" not in stdout
    assert stderr.count("and warns\n") == 1


def test_the_run_directory_is_complete(looked: tuple[Path, str, str]) -> None:
    run = looked[0]
    result = json.loads((run / "result.json").read_text())
    assert result["valid"] is True and result["collectives"] == []
    names = {path.name for path in run.iterdir()}
    assert names >= {"spec.yaml", "links.jsonl", "capture", "report.html", "trace.json", "work"}
    # Each of h1 and h2 sent its name, acknowledgements and connecting aside.
    links = [json.loads(line) for line in (run / "links.jsonl").read_text().splitlines()]
    sent = {link["node"]: link["bytes"] for link in links}
    assert all(200 < sent[host] < 1000 for host in ("h1", "h2"))


def test_a_world_of_one_runs_and_a_teed_line_has_its_rank(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "-n", "1", "--tee", "all",
        "--", "sh", "-c", "echo one of $WORLD_SIZE; echo warned >&2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[0] one of 1" in done.stdout.splitlines()
    assert "[0] warned" in done.stderr.splitlines()
    assert (tmp_path / "run" / "ranks" / "000.out").read_text() == "one of 1\n"


def test_who_fails_is_named_and_all_others_are_ended(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "fail.py").write_text(
        "import os, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    raise RuntimeError('the loss is not a number')\n"
        "open(f'alive-{os.environ[\"RANK\"]}', 'w')\n"
        "time.sleep(1e6)\n"
    )
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", "python", "fail.py"
    )
    assert done.returncode == 1
    assert "rank 1 on h1 exited with status 1; its last words" in done.stderr
    assert "RuntimeError: the loss is not a number" in done.stderr
    assert str(tmp_path / "run" / "ranks" / "001.err") in done.stderr
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.long
def test_the_rank_that_takes_all_memory_is_named(tmp_path: Path) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "greedy.py").write_text(
        "import os, time\n"
        "time.sleep(1)\n"
        "taken = []\n"
        "while os.environ['RANK'] == '2':\n"
        "    taken.append(bytearray(b'1' * 10_000_000))\n"
        "time.sleep(9)\n"
    )
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--memory", "400MB", "--out", "run",
        "--", "python", "greedy.py",
    )  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"the largest, shared pages counted in each: \w+ \(rank 2, pid", done.stderr)
    assert "Give it more: --set virtual.memory=" in done.stderr


_REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"command": ["no-such-program"]}, "no-such-program: no such program in any directory of PATH"),
    ({"command": ["train.py"]}, "/train.py write ./train.py"),
    ({"command": ["./train.py"]}, "is no program: expected python ./train.py"),
    ({"command": ["./gone.sh"]}, "./gone.sh: no such file"),
    ({"ranks": 4}, "workload.ranks: found 4; expected at most 3"),
    ({"ranks": 3, "ranks_per_host": 2}, "multiple of ranks_per_host = 2"),
    ({"tee": "x"}, "--tee x: expected all, or ranks such as 0,3"),
    ({"tee": "3"}, "expected tee to be all, or ranks from 0 to 2"),
    ({"env": ["2=3"]}, "--env 2=3: expected NAME=VALUE"),
    ({"env": ["NOT_SET_HERE"]}, "your environment has no NOT_SET_HERE"),
    ({"memory": "lots"}, "virtual.memory"),
)


@pytest.mark.parametrize(("options", "said"), _REFUSED, ids=lambda value: str(value))
def test_what_cannot_be_run_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    run: dict[str, Any] = {"command": ["true"], "out": tmp_path / "run", **options}
    with pytest.raises(ValueError, match=re.escape(said)):
        exec_command(tmp_path / "fabric.yaml", kernel=KernelChoice.virtual, **run)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("ranks", [[], ["--ranks", "4"]], ids=["all hosts", "so many ranks"])
def test_a_fabric_that_is_changed_has_as_many_hosts(tmp_path: Path, ranks: list[str]) -> None:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    done = execute(
        tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--set", "fabric.hosts=4",
        "--set", "capture.points=[]", *ranks, "--tee", "all", "--", "python3", "-S", "-c",
        "import os; print('one of', os.environ['WORLD_SIZE'])",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("one of 4") == 4

"""Ranks that are forked from one import of torch look like Pythons of their own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.exec.programs import FABRIC, execute

_SCRIPT = """
import sys
before = set(sys.modules)
import json, os, random
import torch
import numpy

with open("/proc/self/smaps_rollup") as file:
    private = sum(int(line.split()[1]) for line in file if line.startswith("Private_"))
seen_here = True
seen = {
    "argv": sys.argv, "line": sys.orig_argv[1:], "name": __name__, "file": __file__,
    "early": sorted(name for name in before if name.split(".")[0] in ("torch", "numpy")),
    "spec": torch.__spec__.name, "rank": os.environ["RANK"], "parent": os.getppid(),
    "host": os.uname().nodename, "path": sys.path[0], "main": sys.modules["__main__"].seen_here,
    "drawn": [random.random(), float(numpy.random.rand())], "private_kb": private,
}
print(json.dumps(seen), flush=True)
torch.distributed.init_process_group("gloo")
x = torch.ones(4)
torch.distributed.all_reduce(x)
assert x[0].item() == 3
if sys.argv[1] == "fail" and os.environ["RANK"] == "1":
    {}["missing"]
"""


def test_a_forked_rank_is_as_a_python_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "flat.yaml").write_text(FABRIC)
    (tmp_path / "train.py").write_text(_SCRIPT)
    done = execute(tmp_path, "flat.yaml", "--out", "run", "--", "python", "train.py", "a", "-b")
    assert done.returncode == 0, done.stderr
    seen = [
        json.loads((tmp_path / f"run/ranks/{rank:03d}.out").read_text().splitlines()[0])
        for rank in range(3)
    ]
    for rank, one in enumerate(seen):
        assert one["argv"] == ["train.py", "a", "-b"]
        assert one["line"] == ["train.py", "a", "-b"]
        assert (one["name"], one["main"]) == ("__main__", True)
        assert one["file"].endswith("/work/train.py") and one["file"].startswith("/")
        assert one["early"] == [] and one["spec"] == "torch"
        assert (one["rank"], one["host"]) == (str(rank), f"h{rank}")
        assert one["private_kb"] < 150_000
    assert len({one["parent"] for one in seen}) == 1
    assert len({tuple(one["drawn"]) for one in seen}) == 3


def test_a_forked_rank_that_fails_has_its_own_last_words(tmp_path: Path) -> None:
    (tmp_path / "flat.yaml").write_text(FABRIC)
    (tmp_path / "train.py").write_text(_SCRIPT)
    done = execute(tmp_path, "flat.yaml", "--out", "run", "--", "python", "train.py", "fail")
    assert done.returncode == 1
    words = (tmp_path / "run/ranks/001.err").read_text()
    trace = words[words.index("Traceback") :].splitlines()
    assert trace[1].endswith('/work/train.py", line 24, in <module>')
    assert trace[-1].removeprefix("[rank1]: ") == "KeyError: 'missing'"


_ENDING = """
import atexit, os, sys, threading, time
import torch

class Kept:
    def __del__(self):
        print("freed", flush=True)

last = os.environ["RANK"] == "1"  # as a rank that fails has all others ended
kept = Kept()
atexit.register(print, "at exit")
file = open("left-open.txt" if last else os.devnull, "w")
file.write("written")
threading.Thread(target=lambda: (time.sleep(1 + last), print("thread done"))).start()
if os.environ["RANK"] == "2":
    threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
print("last line")
sys.exit(3 if last else None)
"""


def test_a_forked_rank_ends_as_a_python_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "flat.yaml").write_text(FABRIC)
    (tmp_path / "end.py").write_text(_ENDING)
    for out, options in (("forked", ()), ("own", ("-B",))):  # one with options is not forked
        done = execute(
            tmp_path, "flat.yaml", "--out", out, "--kernel", "virtual",
            "--", "python", *options, "end.py",
        )  # fmt: skip
        assert "rank 1 on h1 exited with status 3" in done.stderr
        for rank in range(3):
            said = (tmp_path / out / f"ranks/{rank:03d}.out").read_text().splitlines()
            assert said == ["last line", "thread done", "at exit", "freed"]
        assert (tmp_path / out / "work/left-open.txt").read_text() == "written"


def test_a_module_has_a_main_module_of_its_own(tmp_path: Path) -> None:
    """As torchrun, which ends after its ranks, by its module's name."""
    (tmp_path / "flat.yaml").write_text(FABRIC)
    (tmp_path / "train.py").write_text("import torch\nprint('trained')\n")
    done = execute(
        tmp_path, "flat.yaml", "--ranks", "2", "--out", "run", "--kernel", "virtual",
        "--", "python", "-m", "torch.distributed.run", "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert (tmp_path / f"run/ranks/{rank:03d}.out").read_text() == "trained\n"

"""Are native runs right, or do they say that they are not?

    sudo .venv/bin/python benchmarks/native_truth.py [--directory DIR] [--cases N] [--table FILE]

All-reduces on a star, natively at the scale that `scale: auto` chooses, each beside its exact twin
on the virtual kernel: 10, 100 Mb/s and 1 Gb/s; 2, 4 and 16 ranks; MTU 1500 and 9000; hosts captured
or not; on the machine as it is, beside a process that never sleeps (`hog`), and while all cores
are taken away for 20 ms of every 100 (`stolen`). The verdict is the one without the twin; the one
with it stands beside it. Run `groundwire doctor --measure` first: scales come from it.

`--scale` and `--size` take others than `auto` and what goes with the rate; `--ranks` and `--mtus`
take a part of the cases.

Finished runs stay in DIR: interrupted and started again, it goes on where it was. Verdicts are made
anew, so that DIR of an earlier run shows what today's would be. Drop-tail is what a kernel without
netem can do. `--queues droptail,dctcp,lossless` wants one with netem: with `--guest` the native
runs are those of the virtual kernel in real time, which has it, in a guest of one processor, and no
root is needed:

    .venv/bin/python benchmarks/native_truth.py --guest --queues droptail,dctcp,lossless \\
        --rates 10Mbps --ranks 2,4 --cases 54 --scale 10 --directory DIR

`--transport roce` has rings of programs over RoCE in place of Gloo's over TCP, with path MTUs of
1024 and 4096; with `dctcp` their queue pairs have DCQCN.

`--only-native` makes the native runs alone, and the same command without it the rest.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from analysis.results.judged import TWIN, differences
from analysis.results.result import build_result
from analysis.runs.run import Run, load_run
from groundwire import pipeline
from topologies.spec.spec import Spec, parse_dict

_SIZES = {"10Mbps": "200KB", "100Mbps": "2MB", "1Gbps": "4MB"}
_RANKS, _MTUS = (2, 4, 16), (1500, 9000)
_QUEUES: dict[str, tuple[str, dict[str, object] | None]] = {
    "droptail": ("cubic", None),
    "dctcp": ("dctcp", {"kind": "dctcp", "k": "30KB"}),
    "lossless": ("cubic", {"kind": "lossless", "headroom": "200KB"}),
}
_PATH_MTUS = {1500: 1024, 9000: 4096}
_STOLEN_S, _EVERY_S = 0.02, 0.1
_WITHIN = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """One run. `beside`: idle, hog or stolen."""

    rate: str
    ranks: int
    queue: str
    mtu: int
    captured: bool
    beside: str
    try_: int
    scale: str = "auto"
    size: str = ""
    transport: str = "tcp"

    @property
    def name(self) -> str:
        capture = "captured" if self.captured else "plain"
        scale = "" if self.scale == "auto" else f"-scale{self.scale}"
        return f"{self.twin}-{capture}-{self.beside}-{self.try_}{scale}"

    @property
    def twin(self) -> str:
        """Cases with the same twin differ in what is beside them, and in captures."""
        size = f"-{self.size}" if self.size else ""
        kind = "" if self.transport == "tcp" else f"{self.transport}-"
        return f"{kind}{self.rate}-{self.ranks}-{self.queue}-{self.mtu}{size}"

    def spec(self) -> Spec:
        """A case that is run, on both kernels."""
        control, queue = _QUEUES[self.queue]
        delay = "1ms" if queue is not None else 0
        link = {"rate": self.rate, "delay": delay, "mtu": self.mtu}
        fabric: dict[str, object] = {"kind": "flat", "hosts": self.ranks, "link": link}
        if queue is not None:
            fabric["queue"] = queue
        return parse_dict(
            {
                "name": "native-truth",
                "fabric": fabric,
                **self._sending(control),
                "workload": {
                    "kind": "collectives",
                    "ranks": self.ranks,
                    "iterations": 3,
                    "operations": [{"kind": "all_reduce", "size": self.size or _SIZES[self.rate]}],
                },
                "compute": {"device": "none"},
                "capture": {"points": ["hosts"] if self.captured else []},
                "scale": self.scale if self.scale == "auto" else int(self.scale),
            }
        )

    def _sending(self, control: str) -> dict[str, object]:
        """How messages go: Gloo's, with a congestion control of TCP, or programs' over RoCE."""
        if self.transport == "tcp":
            return {"transport": {"congestion_control": control}}
        roce: dict[str, object] = {"kind": "roce", "qp_timeout": "1s"}
        roce["path_mtu"] = _PATH_MTUS[self.mtu]
        if self.queue == "dctcp":
            roce["congestion_control"] = "dcqcn"
        ring = {"backend": "programs", "all_reduce": {"algorithm": "ring"}}
        return {"transport": roce, "collectives": ring}


def cases(queues: Sequence[str], count: int) -> list[Case]:
    """All settings on the machine as it is, without and with captures, then a part of them beside a
    hog and stolen time."""
    settings = list(itertools.product(_SIZES, _RANKS, queues, _MTUS))
    found = [
        Case(*setting, captured=captured, beside="idle", try_=0)
        for captured in (False, True)
        for setting in settings
    ]
    for beside, every in (("hog", settings[::3]), ("stolen", settings[1::3])):
        found += [Case(*setting, captured=False, beside=beside, try_=0) for setting in every]
    again = (
        Case(*setting, captured=False, beside="idle", try_=attempt)
        for attempt in itertools.count(1)
        for setting in settings
    )
    return [*found, *itertools.islice(again, max(0, count - len(found)))][:count]


@contextmanager
def _beside(what: str) -> Iterator[None]:
    """The other load on the machine while the block runs."""
    children: list[int] = []
    for core in sorted(os.sched_getaffinity(0)):
        if what == "idle" or (what == "hog" and children):
            break
        child = os.fork()
        if child == 0:
            _disturb(what, core)
        children.append(child)
    try:
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _disturb(what: str, core: int) -> None:
    """Never returns."""
    if what == "stolen":
        os.sched_setaffinity(0, {core})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    while True:
        end = time.monotonic() + _STOLEN_S
        while time.monotonic() < end:
            pass
        if what == "stolen":
            time.sleep(_EVERY_S - time.monotonic() % _EVERY_S)


def native_run(case: Case, directory: Path) -> Path:
    """The directory of a case's native run, made if it is not there."""
    place = directory / "native" / case.name
    if not (place / "result.json").exists():
        _remove(place)
        with _beside(case.beside):
            pipeline.run(case.spec(), kernel="native", out=place)
    return place


def twin_run(case: Case, directory: Path) -> Path:
    """The directory of a case's twin, made if it is not there."""
    place = directory / "twins" / case.twin
    if not (place / "result.json").exists():
        _remove(place)
        spec = case.spec().with_overrides({"capture.points": "[]"}, source="the twin")
        pipeline.run(spec, kernel="virtual", out=place)
    return place


def _remove(place: Path) -> None:
    """The leavings of an interrupted run."""
    if place.exists():
        place.rename(place.with_name(f"{place.name}.unfinished-{time.time_ns()}"))


def row(case: Case, native: Path, twin: Path) -> dict[str, Any]:
    """The findings of a case."""
    run, exact = load_run(native), load_run(twin)
    shares = [difference.share for difference in differences(run, exact)]
    without, with_twin = build_result(run), _with_twin(run, twin)
    reasons = without["invalid_reasons"]
    return {
        "case": case,
        "scale": run.environment.scale,
        "shares": shares,
        "valid": without["valid"],
        "valid_with_twin": with_twin["valid"],
        "reasons": [_short(reason) for reason in reasons],
        "stolen": json.loads((native / "environment.json").read_text())["verdict"]["samples"][
            "steal_share"
        ],
    }


def _with_twin(run: Run, twin: Path) -> dict[str, Any]:
    """The result that --twin would have given."""
    link = run.directory / TWIN
    link.symlink_to(twin.resolve())
    try:
        return build_result(run)
    finally:
        link.unlink()


_SHORT = {
    "a core was saturated": "saturated",
    "the hypervisor took": "stolen",
    "ports with enough": "ports slow",
    "a rank waited": "ranks waited",
    "one timer": "timers",
    "longer than their bytes": "too long",
    "sooner than on": "too short",
    "the capture lost": "capture lost",
}


def _short(reason: str) -> str:
    return next((short for words, short in _SHORT.items() if words in reason), reason[:40])


def render(rows: Sequence[dict[str, Any]]) -> str:
    """The table and what it comes to, as Markdown."""
    lines = [
        "| rate | ranks | queue | MTU | captured | beside | scale | off, median | off, worst | verdict | with its twin | reasons |",  # noqa: E501
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for found in rows:
        case, shares = found["case"], found["shares"]
        cells = [
            case.rate, case.ranks, case.queue, case.mtu, "yes" if case.captured else "no",
            case.beside, found["scale"], f"{statistics.median(shares):+.1%}",
            f"{max(shares, key=abs):+.1%}", _verdict(found["valid"]),
            _verdict(found["valid_with_twin"]), ", ".join(found["reasons"]),
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += [
        "",
        "| of the runs | runs | valid | collectives within 5% | off, median | off, worst |",
    ]
    lines.append("|---|---|---|---|---|---|")
    groups = {
        "all": rows,
        "on the machine as it was": [r for r in rows if r["case"].beside == "idle"],
        "beside a hog": [r for r in rows if r["case"].beside == "hog"],
        "with stolen time": [r for r in rows if r["case"].beside == "stolen"],
        "VALID": [r for r in rows if r["valid"]],
        "INVALID": [r for r in rows if not r["valid"]],
        "VALID with the twin": [r for r in rows if r["valid_with_twin"]],
        "INVALID with the twin": [r for r in rows if not r["valid_with_twin"]],
    }
    for name, group in groups.items():
        shares = [abs(share) for r in group for share in r["shares"]]
        within = sum(share <= _WITHIN for share in shares)
        cells = [name, len(group), sum(r["valid"] for r in group)]
        if shares:
            cells += [f"{within} of {len(shares)}", f"{statistics.median(shares):.1%}"]
            cells.append(f"{max(shares):.1%}")
        else:
            cells += ["-", "-", "-"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def _verdict(valid: bool) -> str:
    return "VALID" if valid else "invalid"


def _native_runs_in_a_guest(directory: Path) -> None:
    """Run this command line with `--only-native` in the virtual kernel in real time. Raises
    CalledProcessError."""
    directory.mkdir(parents=True, exist_ok=True)
    guest = [sys.executable, "-m", "emulator.virtual", "--no-time-travel", "--rw", str(directory)]
    inside = [word for word in sys.argv if word != "--guest"]
    subprocess.run([*guest, "--", sys.executable, *inside, "--only-native"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Native runs beside their exact twins.")
    parser.add_argument("--directory", type=Path, default=Path("runs/native-truth"))
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--queues", default="droptail", help="droptail, dctcp, lossless")
    parser.add_argument("--rates", default=",".join(_SIZES))
    parser.add_argument("--ranks", default=",".join(map(str, _RANKS)))
    parser.add_argument("--mtus", default=",".join(map(str, _MTUS)))
    parser.add_argument("--scale", default="auto", help="auto, or a number")
    parser.add_argument("--size", default="", help="what is reduced; default: by the rate")
    parser.add_argument("--transport", default="tcp", choices=["tcp", "roce"])
    parser.add_argument("--only-native", action="store_true")
    parser.add_argument("--guest", action="store_true", help="native runs in a virtual kernel")
    parser.add_argument("--table", type=Path, help="a file for the table; default: print it")
    options = parser.parse_args()
    if options.guest:
        _native_runs_in_a_guest(options.directory)
    if options.guest and options.only_native:
        return
    wanted = cases(options.queues.split(","), options.cases)
    wanted = [
        replace(case, scale=options.scale, size=options.size, transport=options.transport)
        for case in wanted
        if case.rate in options.rates.split(",")
        and str(case.ranks) in options.ranks.split(",")
        and str(case.mtu) in options.mtus.split(",")
    ]
    rows = []
    for number, case in enumerate(wanted, start=1):
        began = time.monotonic()
        try:
            native = native_run(case, options.directory)
            if options.only_native:
                continue
            rows.append(row(case, native, twin_run(case, options.directory)))
        finally:
            took_s = time.monotonic() - began
            print(f"{number} of {len(wanted)}: {case.name}, {took_s:.0f} s", file=sys.stderr)
    if rows:
        text = render(rows)
        if options.table is None:
            print(text)
        else:
            options.table.write_text(text)


if __name__ == "__main__":
    main()

"""The gallery: experiments, each with its commands, a picture and one figure of its result.

    .venv/bin/python -m testing.gallery [NAME...]

runs them (all, or those named), keeps pictures and figures in docs/gallery/ and writes
docs/gallery.md from what is kept.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import groundwire
from groundwire import Frames, Run

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"
_KEPT = ROOT / "docs" / "gallery"
_HEAD = """# Gallery

Experiments that take a minute or less each, with the commands that made what is shown. Each
picture is one of those that `groundwire report RUN --format svg` writes; `groundwire view RUN` is
the page to look around in. `make gallery` runs them again. The same from Python, in a notebook:
[notebook.ipynb](notebook.ipynb).
"""


@dataclass(frozen=True)
class Experiment:
    """An entry. `arguments` are those of `groundwire run`; `picture` is the name of a picture of
    its report; `found` says in a sentence what the run shows, with its figures."""

    name: str
    title: str
    arguments: str
    picture: str
    found: Callable[[Run, Frames], str]
    read_on: str

    @property
    def command(self) -> str:
        """The command as a reader types it."""
        return f".venv/bin/groundwire run {self.arguments} --out runs/{self.name}"


def _exposed(run: Run, frames: Frames) -> str:
    last = frames.iterations.iloc[-1]
    exposed = last["mean_duration_ns"] - last["compute_ns"] - last["other_ns"]
    return (
        f"Ranks wait for communication in {exposed / last['mean_duration_ns']:.0%} of the last "
        f"iteration; {last['overlapped_mlp_gradient_ns'] / 1e3:,.0f} us of the AllReduce are "
        "hidden behind computing."
    )


def _collisions(run: Run, frames: Frames) -> str:
    return f"{_uplinks(frames)}, as a switch chooses by a hash of ports. {_time(frames)}"


def _sprayed(run: Run, frames: Frames) -> str:
    again = frames.flows.retransmitted_packets.sum()
    return (
        f"{_uplinks(frames)}: each packet takes the shortest queue. Packets overtake, and senders "
        f"send {again:,.0f} again. {_time(frames)}"
    )


def _time(frames: Frames) -> str:
    return f"The iteration takes {frames.iterations.duration_ns.iloc[-1] / 1e3:,.0f} us."


def _uplinks(frames: Frames) -> str:
    tiers = frames.tiers
    up = tiers[(tiers.tier == "leaf-spine") & (tiers.direction == "up")].iloc[0]
    return (
        f"The busiest of {up['ports']:.0f} uplinks is used {up['max_utilisation']:.0%} of the time "
        f"where the mean is {up['mean_utilisation']:.0%}"
    )


def _dimensions(run: Run, frames: Frames) -> str:
    used = {row.tier: row.mean_utilisation for row in frames.tiers.itertuples() if row.ports > 0}
    shown = ", ".join(f"{name} {use:.0%}" for name, use in used.items())
    return f"Gloo's ring over ranks in order loads the two dimensions unevenly: {shown}."


def _trees(run: Run, frames: Frames) -> str:
    took = {
        (row.size_bytes, row.iteration, index % 2): row.duration_ns
        for index, row in enumerate(frames.collectives.itertuples())
    }
    small = took[8, 0, 1] / took[8, 0, 0]
    large = took[1_000_000, 0, 1] / took[1_000_000, 0, 0]
    return (
        f"An all-reduce of 8 bytes by the switches is {small:.1f} times faster than halving and "
        f"doubling, one of 1 MB {large:.1f} times faster than a ring."
    )


def _partition(run: Run, frames: Frames) -> str:
    sent = frames.traffic.bytes
    return (
        f"{len(sent)} pairs of workers exchange {sent.sum() / 1e6:,.1f} MB; the largest pair has "
        f"{sent.max() / sent.mean():.1f} times the mean."
    )


def _controllers(run: Run, frames: Frames) -> str:
    summary = run.result["summary"]
    return (
        f"Switches mark {summary['ecn_marks']:,} packets, DCQCN slows its queue pairs down, and "
        f"ports pause {summary['pauses']:,} times."
    )


def _losses(run: Run, frames: Frames) -> str:
    flows = frames.flows
    hit = flows[flows.retransmitted_packets > 0]
    return (
        f"One bad link of {len(run.fabric.links)} makes {len(hit)} of {len(flows)} flows send "
        f"{flows.retransmitted_packets.sum():,.0f} packets again; the slowest percent of messages "
        f"takes up to {flows.slowdown_p99.max():,.0f} times its time in an empty network."
    )


def _pauses(run: Run, frames: Frames) -> str:
    deepest = frames.ports.max_backlog_bytes.max()
    return (
        f"Nothing is dropped: {run.result['summary']['pauses']:,} pauses hold the senders back, "
        f"and the deepest queue is {deepest / 1e3:,.0f} KB."
    )


def _predicted(run: Run, frames: Frames) -> str:
    errors = run.result["summary"]["error"]
    shown = ", ".join(f"{name} {each['mean']:.1%}" for name, each in errors.items())
    return f"Mean errors of the predictors: {shown}."


EXPERIMENTS = (
    Experiment(
        "dlrm-step",
        "Where the time of a DLRM step goes",
        "topologies/dlrm-fat-tree-k4.yaml",
        "timeline-iteration-2",
        _exposed,
        "howto/first-experiment.md",
    ),
    Experiment(
        "ecmp",
        "A hash leaves links idle",
        "topologies/leaf-spine.yaml",
        "fabric-whole-run",
        _collisions,
        "report.md",
    ),
    Experiment(
        "predictors",
        "A prediction beside every number",
        "topologies/leaf-spine.yaml --set predict=[packet,flow,alpha-beta,textbook]",
        "prediction",
        _predicted,
        "prediction.md",
    ),
    Experiment(
        "torus",
        "A ring on a torus",
        "topologies/torus-4x4.yaml --set predict=[packet]",
        "fabric-whole-run",
        _dimensions,
        "collectives.md",
    ),
    Experiment(
        "switches-that-compute",
        "Switches that compute",
        "topologies/in-network-fat-tree-k4.yaml",
        "fabric-aggregation-tree",
        _trees,
        "in-network.md",
    ),
    Experiment(
        "partition",
        "A network split over workers",
        "topologies/partition-mlp-8.yaml",
        "traffic",
        _partition,
        "partitions.md",
    ),
    Experiment(
        "controllers",
        "Queue pairs that slow down",
        "topologies/leaf-spine.yaml --set 'fabric.queue={kind: lossless, kmin: 100KB, "
        "kmax: 400KB, pmax: 0.2, xoff: 512KB, xon: 480KB}' "
        "--set 'transport={kind: roce, congestion_control: dcqcn}' "
        "--set 'collectives={backend: programs, all_reduce: {algorithm: ring}, "
        "all_to_all: {algorithm: direct}}'",
        "rates",
        _controllers,
        "roce.md",
    ),
    Experiment(
        "spraying",
        "Packets that are sprayed",
        "topologies/leaf-spine.yaml --set 'fabric.routing={kind: spray, choose: least-queue}'",
        "fabric-whole-run",
        _sprayed,
        "paths.md",
    ),
    Experiment(
        "bad-link",
        "One bad link",
        "topologies/leaf-spine.yaml "
        "--set 'faults=[{kind: corrupt, link: leaf0-spine0, at: 0s, value: 0.001}]'",
        "flows-slowdown",
        _losses,
        "spec.md",
    ),
    Experiment(
        "pauses",
        "An incast that loses nothing",
        "topologies/incast-64-lossless.yaml --set fabric.hosts=17 --set workload.ranks=17 "
        "--set 'workload.operations=[{kind: incast, size: 1MB, degree: 16}]'",
        "queues",
        _pauses,
        "queues.md",
    ),
)


def run_experiment(experiment: Experiment, kept_in: Path = _KEPT) -> None:
    """Run it as its reader would, and keep its picture and its figure in a directory.

    Raises CalledProcessError when a command fails, KeyError when the report lacks the picture.
    """
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / experiment.name
        tool = [sys.executable, "-m", "groundwire"]
        subprocess.run(
            [*tool, "run", *shlex.split(experiment.arguments), "--out", str(out)],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        subprocess.run(
            [*tool, "report", str(out), "--format", "svg"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        run = groundwire.load_run(out)
        kept = {
            "command": experiment.command,
            "verdict": "VALID" if run.result["valid"] else "INVALID",
            "found": experiment.found(run, groundwire.frames(run)),
        }
        kept_in.mkdir(exist_ok=True)
        shutil.copyfile(
            out / "pictures" / f"{experiment.picture}.svg", kept_in / f"{experiment.name}.svg"
        )
        (kept_in / f"{experiment.name}.json").write_text(json.dumps(kept, indent=1) + "\n")


def render() -> str:
    """The page, from what is kept. Raises OSError when an experiment has not been run."""
    return "\n".join([_HEAD, *(_entry(experiment) for experiment in EXPERIMENTS)])


def _entry(experiment: Experiment) -> str:
    kept = json.loads((_KEPT / f"{experiment.name}.json").read_text())
    report = f".venv/bin/groundwire report runs/{experiment.name} --format svg"
    return (
        f"## {experiment.title}\n\n"
        f"```sh\n{kept['command']}\n{report}   # pictures/{experiment.picture}.svg\n```\n\n"
        f"![{kept['found']}](gallery/{experiment.name}.svg)\n\n"
        f"{kept['found']} The run is {kept['verdict']}. More: [{experiment.read_on}]"
        f"({experiment.read_on}).\n"
    )


def main(names: Sequence[str]) -> int:
    """Run those that are named, or all; write the page. Returns 2 for a name that is not there."""
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"found {', '.join(unknown)}; allowed: {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or known:
        print(f"== {name}", flush=True)
        run_experiment(known[name])
    PAGE.write_text(render())
    print(PAGE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

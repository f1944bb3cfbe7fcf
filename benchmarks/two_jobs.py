"""Two DLRM jobs on a k=4 fat-tree, interleaved and apart: what each is slowed down by the other.

    .venv/bin/python -m benchmarks.two_jobs OUT

Eight ranks each. Interleaved, one has the even hosts and the other the odd ones, so that they share
every uplink. Apart, each has two pods. Both are run with `groundwire run --alone`, which leaves
run directories in OUT: three runs each, in which all connections have the same ports. A table of
Markdown is printed: durations, slow-downs, and those that `flow` predicts. The virtual kernel's
times are exact. The exit status is 1 where a predicted slow-down is off by more than 8%.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RANKS = 8
LIMIT = 0.08
HOSTS = {
    "interleaved": (range(0, 2 * RANKS, 2), range(1, 2 * RANKS, 2)),
    "apart": (range(RANKS), range(RANKS, 2 * RANKS)),
}


def spec(name: str) -> str:
    """Both jobs, on the hosts of a placement."""
    jobs = "\n".join(
        f"  - {{name: {job}, workload: {{kind: dlrm, ranks: {RANKS}, iterations: 2}}, placement: "
        f"{{{', '.join(f'{rank}: h{host}' for rank, host in enumerate(hosts))}}}}}"
        for job, hosts in zip(("left", "right"), HOSTS[name], strict=True)
    )
    return f"""
name: two-jobs-{name}
fabric: {{kind: fat-tree, k: 4, link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}}}
transport: {{initial_window: 1000, rcvbuf: 256MB, sndbuf: 256MB}}
capture: {{points: []}}
predict: [flow]
jobs:
{jobs}
"""


def measure(out: Path, name: str) -> dict[str, Any]:
    """`result.json` of a placement's runs. Raises CalledProcessError when one fails."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.yaml"
    path.write_text(spec(name))
    subprocess.run(
        [
            *(sys.executable, "-m", "groundwire.cli", "run", str(path)),
            *("--kernel", "virtual", "--alone", "--out", str(out / name)),
        ],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    result: dict[str, Any] = json.loads((out / name / "result.json").read_text())
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="where run directories go; must not exist")
    out = parser.parse_args().out
    if out.exists():
        parser.error(f"{out} exists already")
    print("| hosts | job | beside the other | alone | slow-down | `flow` says | off | same paths |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    worst = 0.0
    for name in HOSTS:
        for job in measure(out, name)["jobs"]:
            predicted = job["predicted"]["flow"]["slowdown"]
            off = predicted / job["slowdown"] - 1
            worst = max(worst, abs(off))
            same = "yes" if job["alone"]["same_paths"] else "no"
            print(
                f"| {name} | {job['name']} | {job['duration_ns'] / 1e3:,.1f} us "
                f"| {job['alone']['duration_ns'] / 1e3:,.1f} us | {job['slowdown']:.3f} "
                f"| {predicted:.3f} | {off:+.1%} | {same} |",
                flush=True,
            )
    print(f"\nworst: {worst:.1%} (limit {LIMIT:.0%})")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())

"""Synthetic traces of other sizes against real runs at those sizes.

    .venv/bin/python -m benchmarks.synthesis --runs DIR [--model dlrm|transformer] [--obfuscated]

`groundwire trace synthesize` learns from five traces of a model, of five sizes, and makes five of
sizes that it has not seen. Each is replayed in the virtual kernel, and so is the model itself at
that size; the table has by what the replay's iteration, exposed communication, bytes of the most
different link and bytes of the most different kind of collective are off. The DLRM keeps its batch
of 1,536 samples, divided among the ranks. Runs are kept in DIR by the hash of their spec. With
--obfuscated the models' own traces are replayed, obfuscated.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from analysis.chakra.disguise.obfuscate import obfuscated
from analysis.chakra.disguise.statistics import learn
from analysis.chakra.files import write_graphs
from analysis.chakra.graph import Graph
from analysis.chakra.sources.from_spec import graphs_of_spec
from testing.kept_runs import kept_run
from topologies.spec.spec import parse_dict

Size = tuple[int, int]
"""Ranks, and those of an inner group."""
BATCH = 1536
MOST_RANKS = 6
"""The largest size of the table of obfuscated traces."""
CORPUS: Mapping[str, Sequence[Size]] = {
    "dlrm": [(2, 1), (3, 1), (4, 1), (6, 1), (8, 1)],
    "transformer": [(4, 2), (6, 2), (8, 2), (8, 4), (12, 4)],
}
MADE: Mapping[str, Sequence[Size]] = {
    "dlrm": [(5, 1), (10, 1), (12, 1), (15, 1), (16, 1)],
    "transformer": [(10, 2), (6, 3), (9, 3), (12, 2), (16, 4)],
}


def spec_of(model: str, size: Size) -> dict[str, object]:
    """The model at a size, on one switch of 25 Gb/s."""
    ranks, inner = size
    if model == "dlrm":
        workload: dict[str, object] = {
            "kind": "dlrm",
            "ranks": ranks,
            "iterations": 1,
            "batch_size": BATCH // ranks,
            "sparse_features": 60,
        }
    else:
        workload = {
            "kind": "training",
            "parallelism": {"data": ranks // inner, "tensor": inner},
            "iterations": 1,
            "layers": 2,
            "hidden": 768,
            "microbatches": 1,
        }
    link = {"rate": "25Gbps", "delay": "1us", "mtu": 9000}
    return {
        "name": f"{model}-{ranks}-{inner}",
        "fabric": {"kind": "flat", "hosts": ranks, "link": link},
        "workload": workload,
        "predict": [],
        "payload": "timing",
    }


def table(model: str, runs: Path, seed: int) -> Iterator[tuple[str, ...]]:
    """Rows of a model's table."""
    corpus = {str(size): graphs_of_spec(parse_dict(spec_of(model, size))) for size in CORPUS[model]}
    learned = learn(corpus)
    for size in MADE[model]:
        drawn = learned.draw(*size, seed)
        spec = spec_of(model, size)
        real = kept_run(yaml.safe_dump(spec), runs)
        yield (model, *_row(size, real, kept_run(_replay(spec, drawn, runs), runs)))


def disguised(model: str, runs: Path) -> Iterator[tuple[str, ...]]:
    """Rows of a model's traces, obfuscated, at the smaller sizes of its corpus."""
    for size in (each for each in CORPUS[model] if each[0] <= MOST_RANKS):
        spec = spec_of(model, size)
        graphs = obfuscated(graphs_of_spec(parse_dict(spec)))
        real = kept_run(yaml.safe_dump(spec), runs)
        yield (model, *_row(size, real, kept_run(_replay(spec, graphs, runs), runs)))


def _replay(spec: dict[str, object], graphs: Sequence[Graph], runs: Path) -> str:
    """The spec with traces, which are written, in place of its workload."""
    digest = hashlib.sha256(repr(graphs).encode()).hexdigest()[:12]
    prefix = runs / f"traces-{digest}" / "trace"
    prefix.parent.mkdir(parents=True, exist_ok=True)
    write_graphs(prefix, graphs)
    workload = {"kind": "chakra", "path": str(prefix.resolve())}
    return yaml.safe_dump(spec | {"workload": workload})


def _row(size: Size, real: Path, made: Path) -> tuple[str, ...]:
    first, second = (json.loads((run / "result.json").read_text()) for run in (real, made))
    valid = first["valid"] and second["valid"]
    whole, again = (result["iterations"][0] for result in (first, second))
    links = _most(_links(real), _links(made))
    kinds = _most(_kinds(first), _kinds(second))
    return (
        f"{size[0]}",
        f"{size[1]}",
        f"{whole['duration_ns'] / 1000:,.0f}",
        f"{_off(whole['duration_ns'], again['duration_ns']):+.2%}",
        f"{_off(whole['exposed_comm_ns'], again['exposed_comm_ns']):+.2%}",
        f"{links:+.2%}",
        f"{kinds:+.2%}",
        "yes" if valid else "no",
    )


def _off(real: float, made: float) -> float:
    return made / real - 1 if real else float(made > 0)


def _most(real: Mapping[object, int], made: Mapping[object, int]) -> float:
    """The largest difference of all entries, as a share of the real one."""
    return max((_off(real.get(key, 0), made.get(key, 0)) for key in {*real, *made}), key=abs)


def _links(run: Path) -> dict[object, int]:
    lines = (json.loads(line) for line in (run / "links.jsonl").read_text().splitlines())
    return {line["port"]: line["bytes"] for line in lines}


def _kinds(result: Mapping[str, list[dict[str, object]]]) -> dict[object, int]:
    found: dict[object, int] = defaultdict(int)
    for row in result["collectives"]:
        if row["phase"] != "alignment" and row["kind"] != "barrier":
            size_bytes = row["size_bytes"]
            assert isinstance(size_bytes, int)
            found[row["kind"], row["ranks"]] += size_bytes
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--model", choices=list(CORPUS), action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--obfuscated", action="store_true", help="obfuscated traces instead")
    arguments = parser.parse_args()
    print("| model | ranks | inner | iteration us | iteration | exposed | link | kind | valid |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|---|")
    for model in arguments.model or list(CORPUS):
        rows = (
            disguised(model, arguments.runs)
            if arguments.obfuscated
            else table(model, arguments.runs, arguments.seed)
        )
        for row in rows:
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

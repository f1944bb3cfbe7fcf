"""FRED (Rashidi et al., ISCA 2025): a wafer's mesh beside trees of switches that reduce."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.claims.claim import Claim
from benchmarks.claims.experiment import Bench, Experiment
from benchmarks.claims.rules import BYTES, COUNTED, TIME, AtMost, Within
from benchmarks.fred import collectives, models
from benchmarks.fred.table import Case, Row, measured
from collectives.algorithms import algorithm
from collectives.kinds import Kind

_SOURCE = "Rashidi et al., ISCA 2025 (FRED), text of a transcription"
_WAFER = "20 endpoints, rates a 240th of the paper's, all-reduce of 2 MB"
_TUNED = (
    "the mesh's first programs were 20 to 106% slower; programs and the initial window were then "
    "changed until the mesh was as fast as its rates allow"
)


def _row(bench: Bench, case: Case) -> tuple[Row, Path]:
    directory = bench.run(case.spec)
    return measured(case, directory), directory


def _sent(directory: Path) -> float:
    """Bytes that the ports of hosts sent, on average."""
    ports = [json.loads(line) for line in (directory / "links.jsonl").read_text().splitlines()]
    sent = [port["bytes"] for port in ports if port["node"].startswith("h")]
    return float(sum(sent)) / len({p["node"] for p in ports if p["node"].startswith("h")})


def _collectives(bench: Bench) -> Mapping[str, Any]:
    """How many times as fast as on the mesh, and bytes that an endpoint sends over the mesh's."""
    found: dict[str, Any] = {"gain": {}, "fewer_bytes": {}, "in_switch": {}}
    for name in ("wafer", "DP(5)", "MP(2)", "PP(2)"):
        us, sent = {}, {}
        for case in collectives.cases(name):
            row, directory = _row(bench, case)
            us[case.fabric], sent[case.fabric] = row.us, _sent(directory)
        key = name.replace("(", "").replace(")", "")
        if name in ("wafer", "DP(5)"):
            found["in_switch"][key] = sent["A"] / sent["B"]
        found["gain"][key] = {f: us["mesh"] / t for f, t in us.items() if f != "mesh"}
        found["fewer_bytes"][key] = {f: sent["mesh"] / b for f, b in sent.items() if f != "mesh"}
    return found


def _training(bench: Bench) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for name in models.NAMES:
        us = {case.fabric: _row(bench, case)[0].us for case in models.cases(name)}
        found[name] = {fabric: us["mesh"] / time for fabric, time in us.items() if fabric != "mesh"}
    return found


def _edge(bench: Bench) -> Mapping[str, Any]:
    """Channels on the busiest link inside an N x N mesh, of 4N that come in at its edge."""

    def busiest(columns: int, rows: int) -> int:
        program = algorithm("edge-streams", dimensions=(columns, rows)).program(
            Kind.BROADCAST, 1 + columns * rows
        )
        links = Counter((m.source, m.destination) for m in program.messages() if m.source)
        return max(links.values())

    squares = {str(size): busiest(size, size) for size in (2, 3, 4, 5, 6, 8)}
    wafer = busiest(4, 5)
    return {"square": squares, "wafer": wafer, "rate": 750 / (wafer * 128)}


COLLECTIVES = Experiment("fred-collectives", "virtual kernel", _collectives)
TRAINING = Experiment("fred-training", "virtual kernel", _training)
EDGE = Experiment("fred-edge", "arithmetic", _edge, cheap=True)


def _wafer(fabric: str, words: str) -> Claim:
    gain = collectives.GAINS["wafer"][fabric]
    return Claim(
        f"fred-wafer-{fabric.lower()}",
        f"An all-reduce over the wafer on {fabric} ({words}) beside the mesh",
        _SOURCE,
        "effective bandwidths: mesh 1.5 TB/s, A 1.85, B 1.5 at half the traffic, C 3, D 3 at half",
        f"{gain:.2f} times as fast",
        setting=_WAFER,
        experiment=COLLECTIVES,
        shows=f"{{gain[wafer][{fabric}]:.2f}} times",
        rules=(Within(f"gain.wafer.{fabric}", gain, TIME),),
        conditions=_TUNED,
    )


def _dp(fabric: str) -> Claim:
    gain = collectives.GAINS["DP(5)"][fabric]
    return Claim(
        f"fred-dp-{fabric.lower()}",
        f"Five data-parallel groups at once on {fabric} beside the mesh",
        _SOURCE,
        "effective bandwidths: mesh 0.75 TB/s, A 0.375, B 37.5% less traffic, C 3, D 3 with it",
        f"{gain:.1f} times as fast",
        setting=_WAFER + " in groups of 5",
        experiment=COLLECTIVES,
        shows=f"{{gain[DP5][{fabric}]:.2f}} times",
        rules=(Within(f"gain.DP5.{fabric}", gain, TIME),),
        conditions=_TUNED,
    )


def _model(name: str, fabric: str, published: float) -> Claim:
    return Claim(
        f"fred-{name.lower()}-{fabric.lower()}",
        f"An iteration of {name} on {fabric} beside the mesh",
        _SOURCE,
        f"{published:.2f} times as fast",
        setting="a layer table with the model's shares, made small, 20 endpoints",
        experiment=TRAINING,
        shows=f"{{{name}[{fabric}]:.2f}} times",
        rules=(Within(f"{name}.{fabric}", published, TIME),),
        conditions="computing is not published: it is set so that C has its ratio by the text's "
        "bandwidths" + ("" if fabric == "C" else "; D's is free"),
        earlier="[a page](fred.md#training)",
    )


CLAIMS = (
    _wafer("A", "a tree, no reducing in switches"),
    _wafer("B", "the same with reducing"),
    _wafer("C", "ten times the bisection, no reducing"),
    _wafer("D", "the same with reducing"),
    *(_dp(fabric) for fabric in "ABCD"),
    Claim(
        "fred-dp-a-loses",
        "With five data-parallel groups A is slower than the mesh",
        _SOURCE,
        "A 0.375 TB/s, mesh 0.75",
        setting=_WAFER + " in groups of 5",
        experiment=COLLECTIVES,
        shows="{gain[DP5][A]:.2f} times as fast",
        rules=(AtMost("gain.DP5.A", 0.99),),
    ),
    Claim(
        "fred-mp",
        "Model-parallel groups of two are 4 times as fast on each of its trees",
        _SOURCE,
        "0.75 and 3 TB/s",
        "4 times",
        setting=_WAFER + " in groups of 2",
        experiment=COLLECTIVES,
        shows="C {gain[MP2][C]:.2f}, D {gain[MP2][D]:.2f} times",
        rules=(Within("gain.MP2.C", 4, TIME), Within("gain.MP2.D", 4, TIME)),
        conditions=_TUNED,
    ),
    Claim(
        "fred-pp",
        "Messages of a pipeline are 4 times as fast",
        _SOURCE,
        "0.75 and 3 TB/s",
        "4 times",
        setting=_WAFER + ", each endpoint to its like two places away",
        experiment=COLLECTIVES,
        shows="{gain[PP2][D]:.2f} times",
        rules=(Within("gain.PP2.D", 4, TIME),),
    ),
    Claim(
        "fred-traffic",
        "Reducing in switches has approximately half the traffic of endpoints",
        _SOURCE,
        "“approximately 2x less traffic”",
        "1.9 times: 2 S 19 / 20 and S",
        setting=_WAFER + ", bytes of endpoints' ports over the wafer, C beside D",
        experiment=COLLECTIVES,
        shows="D sends {fewer_bytes[wafer][D]:.2f} times fewer bytes than the mesh, C "
        "{fewer_bytes[wafer][C]:.2f}",
        rules=(Within("fewer_bytes.wafer.D", 1.9, BYTES),),
    ),
    Claim(
        "fred-traffic-dp",
        "With five groups it has 37.5% less traffic",
        _SOURCE,
        "37.5% less",
        "1.6 times: 2 S 4 / 5 and S",
        setting=_WAFER + " in groups of 5, bytes of endpoints' ports, A beside B",
        experiment=COLLECTIVES,
        shows="B sends {in_switch[DP5]:.2f} times fewer bytes than A",
        rules=(Within("in_switch.DP5", 1.6, BYTES),),
    ),
    Claim(
        "fred-edge",
        "Weights that come in at the edge of an N x N mesh put 2N - 1 channels on one link",
        _SOURCE,
        "(2N - 1) P of 4N channels of P",
        setting="our programs on N = 2, 3, 4, 5, 6, 8",
        experiment=EDGE,
        shows="{square[2]}, {square[3]}, {square[4]}, {square[5]}, {square[6]}, {square[8]}",
        rules=tuple(Within(f"square.{n}", 2 * n - 1, 0.0) for n in (2, 3, 4, 5, 6, 8)),
    ),
    Claim(
        "fred-edge-rate",
        "Of 128 GB/s on 5x4 the channels get 0.65 of their rate",
        _SOURCE,
        "9 x 128 = 1,152 GB/s for 750: 0.65",
        setting="our program on 5x4 with 18 channels",
        experiment=EDGE,
        shows="{wafer} channels on the busiest link: {rate:.2f}",
        rules=(Within("rate", 0.65, COUNTED), Within("wafer", 9, 0.0)),
    ),
    *(
        _model(name, fabric, gain)
        for name, model in models.MODELS.items()
        for fabric, gain in model.published.items()
    ),
    *(_model(models.STREAMED, fabric, models.STREAMED_GAIN) for fabric in "CD"),
    Claim(
        "fred-strategies",
        "Over all strategies Transformer-17B and -1T are trained 1.63 and 1.44 times as fast",
        _SOURCE,
        "1.63, 1.44; exposed communication 4.22 and 3.92 times less",
        untested="the strategies that were averaged are not listed in what could be read",
    ),
    Claim(
        "fred-routing",
        "Three middle switches (m = 3) route unicasts without blocking",
        _SOURCE,
        "m = 3 strictly non-blocking, m = 2 rearrangeable",
        untested="its switches are output-queued here; the Clos network inside one is not modelled",
    ),
)

"""Claims of operators, of other simulators and of Gloo's users."""

from __future__ import annotations

from benchmarks.claims.claim import Claim

_GPUS = "a measurement of GPUs or of a cluster; there are none here"


def _untested(name: str, sentence: str, source: str, published: str, reason: str) -> Claim:
    return Claim(name, sentence, source, published, untested=reason)


CLAIMS = (
    _untested(
        "alibaba-hpn",
        "Two planes and two ToRs make training 14.9% faster",
        "Alibaba HPN, SIGCOMM 2024",
        "14.9%, about 15%",
        "a measurement of thousands of GPUs; their training and placement were not looked up",
    ),
    _untested(
        "cassini-marks",
        "Jobs shifted against each other have 33 times fewer marks",
        "CASSINI, NSDI 2024",
        "33 times",
        "its mixes of 24 servers and the shifts that it chose were not looked up; see `cassini`",
    ),
    _untested(
        "deepseek-planes",
        "Several planes are on a par with several rails",
        "DeepSeek, arXiv 2505.09343",
        "parity (table not read)",
        "its planes are rails that nothing joins, with `pxn`; the table that they would be held "
        "against was not read",
    ),
    _untested(
        "spritz-reps",
        "Entropy that is recycled is up to 1.8 times as fast, 25.4 times under failures",
        "arXiv 2602.19567 and 2407.21625 (simulated)",
        "1.8, 25.4 times",
        "MRC's senders choose entropy by states of paths, not by these rules; of sprays by "
        "switches see `reps-sprays`",
    ),
    _untested(
        "netkv",
        "Placement by the network takes 21.2% off the time to the first token",
        "NetKV (simulated, 64 GPUs)",
        "21.2%",
        "hosts of requests are the spec's; no router places them by the network",
    ),
    _untested(
        "torchtitan",
        "Llama 3 8B by FSDP2 makes 5,762 tokens a second and GPU on 8 H100, 5,605 on 128",
        "pytorch/torchtitan, llama3_h100_202412",
        "5,762; 5,605",
        _GPUS,
    ),
    _untested(
        "phantora",
        "Rows of torchtitan are predicted with 2.9% error",
        "QDelta/Phantora",
        "2.9% mean, 8.5% worst",
        "a claim about another simulator, against GPUs",
    ),
    _untested(
        "simai",
        "Training is predicted within 1.9%",
        "SimAI, NSDI 2025",
        "1.9% mean",
        "a claim about another simulator, against GPUs",
    ),
    _untested(
        "multiverse",
        "Training on up to 54,000 GPUs is predicted within 3.0%",
        "Multiverse, NSDI 2025",
        "3.0%",
        "a claim about another simulator, against GPUs",
    ),
    _untested(
        "vtrain",
        "1,500 measured training times are predicted within 8.4% and 14.7%",
        "vTrain (KAIST)",
        "8.4%, 14.7%",
        "a claim about another simulator, against GPUs; its times are open and to be read with the "
        "issue on hardware",
    ),
    _untested(
        "atlahs",
        "Traces of LLMs are replayed within 5%",
        "ATLAHS, arXiv 2505.08936",
        "5%",
        "its GOAL texts are read; the measured times beside them are GPUs'",
    ),
    _untested(
        "wormhole",
        "Packet simulation is 1,012 times as fast as ns-3, within 1%",
        "Wormhole, arXiv 2602.10615",
        "1,012 times",
        "a claim about another simulator; ours beside ns-3 is in docs/virtual-speed.md",
    ),
    _untested(
        "astra-hgx",
        "ASTRA-sim is within 20.6, 12.0, 9.7% of NCCL on 2, 4, 8 H100",
        "astra-sim.github.io, validation",
        "20.6, 12.0, 9.7%",
        _GPUS,
    ),
    _untested(
        "gloo-all-gather",
        "Gloo's all-gather of 200 MB is 58% slower with 2 ranks than with 3 to 8",
        "pytorch/gloo #471",
        "58%",
        "its cause is in the hosts' software, whose costs on those machines are not told "
        "(`host` charges known ones)",
    ),
    _untested(
        "gloo-40g",
        "Gloo moves 1.073 GB/s on 40 Gb/s, 20 MB between two hosts",
        "pytorch/gloo #248",
        "1.073 GB/s",
        "its cause is in the hosts' software, whose costs on those machines are not told "
        "(`host` charges known ones)",
    ),
)

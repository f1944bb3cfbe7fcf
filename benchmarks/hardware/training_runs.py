"""The published rates of `training.csv`, and what their sources say of how they were trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.hardware.rows import rows

FILE = Path(__file__).parent / "training.csv"

BINNED = 256 + 32
"""Tokens of a sequence of BERT's second phase. The source pads to the longest of bins of 64 (its
changelog), so by 32 in the mean; half the tokens of Wikipedia padded to 512 are padding (arXiv
2107.02027, abstract)."""


@dataclass(frozen=True, slots=True)
class Run:
    """A published rate, of tokens or sequences a second of a GPU."""

    id: str
    source: str
    measured_on: str
    model: str
    gpu: str
    gpus: int
    technique: str
    recompute: str
    sequence: int
    microbatch: int
    accumulation: int
    tensor: int
    context: int
    nic_gbps: int
    unit: str
    value: float
    role: str
    compared_with: str
    not_stated: str

    @property
    def fitted(self) -> bool:
        """Whether the time of tensor cores is fitted on it."""
        return self.role == "fitted"

    @property
    def bert(self) -> bool:
        """Whether it trains BERT: attention that is neither causal nor fused."""
        return self.technique.startswith("bert")

    @property
    def mixed(self) -> bool:
        """Whether parameters are gathered in 32 bits, cast by autocast, and reduced in 16:
        `mixed_precision: DEFAULT` (mosaicml/composer trainer/mosaic_fsdp_utils.py,
        get_mixed_precision)."""
        return "amp_bf16" in self.measured_on

    @property
    def waits(self) -> bool:
        """Whether computing waits while gradients are reduced, in 16 bits: `overlap_comm: False`
        (full_model_zero3_repro.py of the source; DeepSpeed runtime/zero/stage3.py,
        reduce_and_partition_stream, and runtime/engine.py, communication_data_type)."""
        return "ZeRO-3" in self.measured_on

    @property
    def length(self) -> int:
        """Tokens of a sequence that are computed."""
        return BINNED if self.technique == "bert-binned" else self.sequence

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch that one GPU works on, all its tensor-parallel peers alike."""
        return self.microbatch * self.length // self.context


def runs(planned: bool = False) -> tuple[Run, ...]:
    """All rows, in the order of the file: those of the role `planned`, which nobody has followed
    yet, only where they are asked for."""
    return tuple(run for run in rows(FILE, Run) if planned or run.role != "planned")

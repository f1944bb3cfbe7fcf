"""The `ingest` workload: training data from storage through preprocessors to trainers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from topologies.spec.fabric_section import Integer
from topologies.spec.workload_types import (
    MAX_SIZE_BYTES,
    Dtype,
    GroupName,
    Iterations,
    SeveralRanks,
)
from topologies.spec.workloads import WorkloadSection
from topologies.units import BytesPerSecond, SizeBytes, TimeNs

_MOST_MESSAGES = 20_000
"""In an iteration. Each takes milliseconds of wall time in a guest, and some of its memory."""


class IngestWorkload(WorkloadSection):
    """Trainers that get each batch from preprocessors, which read it from storage.

    Ranks are first the `trainers`, then the `preprocessors`, then the hosts of `storage`. A trainer
    takes `batches`, each of `prepared` bytes, and computes for `step` on each; then trainers reduce
    `gradients`. A batch is `raw` bytes on a storage host, which reads them at `read`, and a
    preprocessor makes it of them at `transform`, both in bytes of `raw` a second. Both take batches
    by turns. A trainer asks for `prefetch` batches ahead of the one that it computes on, a
    preprocessor for as many ahead of its own. `watts` of a host of each stage are for the figure of
    power.
    """

    kind: Literal["ingest"]
    trainers: Integer = Field(default=4, ge=1, le=1024)
    preprocessors: Integer = Field(default=2, ge=1, le=1024)
    storage: Integer = Field(default=1, ge=1, le=1024)
    ranks: SeveralRanks = Field(
        default_factory=lambda data: data["trainers"] + data["preprocessors"] + data["storage"]
    )
    iterations: Iterations = 1
    batches: Integer = Field(default=8, ge=1, le=10_000)
    raw_bytes: SizeBytes = Field(default=4_000_000, alias="raw", gt=0, le=MAX_SIZE_BYTES)
    prepared_bytes: SizeBytes = Field(default=1_000_000, alias="prepared", gt=0, le=MAX_SIZE_BYTES)
    read_bytes_per_s: BytesPerSecond = Field(default=16_000_000_000, alias="read", gt=0)
    transform_bytes_per_s: BytesPerSecond = Field(default=4_000_000_000, alias="transform", gt=0)
    step_ns: TimeNs = Field(default=2_000_000, alias="step", ge=0)
    gradients_bytes: SizeBytes = Field(default=0, alias="gradients", ge=0, le=MAX_SIZE_BYTES)
    prefetch: Integer = Field(default=2, ge=1, le=1024)
    trainer_watts: Integer = Field(default=700, ge=0, le=10**6)
    preprocessor_watts: Integer = Field(default=500, ge=0, le=10**6)
    storage_watts: Integer = Field(default=400, ge=0, le=10**6)
    dtype: Dtype = "float32"

    @model_validator(mode="after")
    def _whole(self) -> IngestWorkload:
        hosts = self.trainers + self.preprocessors + self.storage
        if self.ranks != hosts:
            raise ValueError(f"expected ranks: {hosts}, trainers + preprocessors + storage")
        messages = 2 * self.trainers * self.batches
        if messages > _MOST_MESSAGES:
            raise ValueError(f"expected at most {_MOST_MESSAGES} messages, found {messages}")
        for name in ("raw", "prepared"):
            if getattr(self, f"{name}_bytes") % self.item_bytes:
                raise ValueError(f"expected {name} to be a multiple of {self.item_bytes} bytes")
        if self.gradients_bytes % (self.item_bytes * self.trainers):
            raise ValueError(
                f"expected gradients to be a multiple of {self.item_bytes * self.trainers} bytes"
            )
        return self

    @property
    def reduces(self) -> bool:
        """Whether trainers reduce gradients."""
        return self.gradients_bytes > 0 and self.trainers > 1

    @property
    def reductions(self) -> tuple[str, ...] | None:
        """Sums of gradients, if there are any."""
        return ("sum",) if self.reduces else None

    def groups_of_ranks(self) -> dict[GroupName, list[list[int]]]:
        """The trainers, and all others."""
        if not self.reduces:
            return {}
        return {
            "data": [list(range(self.trainers)), list(range(self.trainers, self.ranks))],
        }

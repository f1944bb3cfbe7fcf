"""Jobs: what is run for the cases of a study, each once, each with a directory of its own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from emulator.guest_memory import guest_memory_bytes
from emulator.session import KernelKind
from groundwire.studies.software import JobKind, software
from topologies.spec.spec import Spec

PREDICTION = "prediction.json"
JOB_FILE = "job.json"
_DIGITS = 20
_BESIDE_GUEST_BYTES = 400 * 2**20
"""The process that starts a guest, and reads its run directory afterwards."""
_PREDICTOR_BYTES = 300 * 2**20
_RANK_PREDICTED_BYTES = 500 * 2**10


@dataclass(frozen=True, slots=True)
class Job:
    """A run of a spec, or a prediction of one. It is whole in itself: another machine can do it.

    `key` is the name of its directory: a hash of the resolved spec, of what is done with it, and of
    the software. `memory_bytes` is the most that it may take, `made_by` the software that must do
    it. A run has report.html and trace.json with `pages`.
    """

    key: str
    kind: JobKind
    spec: str
    label: str
    ranks: int
    memory_bytes: int
    kernel: KernelKind = "virtual"
    predictor: str = ""
    made_by: tuple[tuple[str, str], ...] = ()
    pages: bool = False


def emulation(spec: Spec, kernel: KernelKind, label: str, *, pages: bool = False) -> Job:
    """The job of running a spec."""
    text = spec.to_yaml()
    made_by = software("emulate")
    key = _key("emulate", text, kernel, repr(made_by), _files(spec))
    return Job(
        key,
        "emulate",
        text,
        label,
        spec.ranks,
        (_guest_bytes(spec) if kernel == "virtual" else 0) + _BESIDE_GUEST_BYTES,
        kernel,
        made_by=made_by,
        pages=pages,
    )


def prediction(spec: Spec, predictor: str, label: str) -> Job:
    """The job of predicting a spec's iteration."""
    text = spec.to_yaml()
    made_by = software("predict")
    ranks = spec.ranks
    key = _key("predict", text, predictor, repr(made_by), _files(spec))
    memory_bytes = _PREDICTOR_BYTES + ranks * _RANK_PREDICTED_BYTES
    return Job(
        key,
        "predict",
        text,
        label,
        ranks,
        memory_bytes,
        predictor=predictor,
        made_by=made_by,
    )


def _guest_bytes(spec: Spec) -> int:
    """Raises OSError for a trace, whose programs only a run writes: then its own setting counts."""
    if spec.virtual.memory_bytes is not None:
        return spec.virtual.memory_bytes
    if any(workload.from_files for workload in spec.workloads):
        return 2 * 2**30 + spec.ranks * 64 * 2**20
    return guest_memory_bytes(spec, Path())


def _files(spec: Spec) -> str:
    """A digest of the files that a spec names: traces and MSCCL programs."""
    named = [file for workload in spec.workloads for file in workload.files]
    named += spec.program_files
    return " ".join(hashlib.sha256(p.read_bytes()).hexdigest() for p in named if p.is_file())


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]

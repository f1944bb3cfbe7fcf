"""The `ingest` workload: who sends which batch to whom, and when each rank waits.

Storage, preprocessing and trainers as stages with hosts and a network of their own are Meta's (Zhao
et al., Understanding data storage and ingestion for large-scale deep recommendation model training,
ISCA 2022, arXiv 2108.09373; Mudigere et al., ISCA 2022, arXiv 2104.05158).
A message is sent when its receiver has asked for it, so what is asked for ahead is the prefetch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.kinds import Kind
from topologies.spec.ingest_section import IngestWorkload
from workloads.models.step import Action, Pause, StartCollective, StartMessage, WaitFor

BATCH, RAW = "batch", "raw"
"""Phases: what goes to trainers, and what goes to preprocessors."""


@dataclass(frozen=True, slots=True)
class Item:
    """A batch of a trainer: its number among the trainer's, and the ranks on its way."""

    number: int
    trainer: int
    preprocessor: int
    storage: int

    @property
    def label(self) -> str:
        """A name that no other item has."""
        return f"{self.number}.{self.trainer}"


def items_of(workload: IngestWorkload) -> list[Item]:
    """All batches of an iteration, in the order in which they are made."""
    found: list[Item] = []
    for number in range(workload.batches):
        for trainer in range(workload.trainers):
            place = len(found)
            preprocessor = workload.trainers + place % workload.preprocessors
            storage = workload.trainers + workload.preprocessors + place % workload.storage
            found.append(Item(number, trainer, preprocessor, storage))
    return found


def ingest_steps(workload: IngestWorkload, rank: int) -> Iterator[Action]:
    """The work of a rank."""
    items = items_of(workload)
    if rank < workload.trainers:
        yield from _train(workload, [item for item in items if item.trainer == rank])
    elif rank < workload.trainers + workload.preprocessors:
        yield from _prepare(workload, [item for item in items if item.preprocessor == rank])
    else:
        yield from _read(workload, [item for item in items if item.storage == rank])


def _batch(workload: IngestWorkload, item: Item) -> StartMessage:
    elements = workload.prepared_bytes // workload.item_bytes
    return StartMessage(f"{BATCH}.{item.label}", BATCH, elements, item.preprocessor, item.trainer)


def _raw(workload: IngestWorkload, item: Item) -> StartMessage:
    elements = workload.raw_bytes // workload.item_bytes
    return StartMessage(f"{RAW}.{item.label}", RAW, elements, item.storage, item.preprocessor)


def _train(workload: IngestWorkload, items: Sequence[Item]) -> Iterator[Action]:
    for item in items[: workload.prefetch]:
        yield _batch(workload, item)
    for place, item in enumerate(items):
        yield WaitFor(f"{BATCH}.{item.label}")
        for ahead in items[place + workload.prefetch : place + workload.prefetch + 1]:
            yield _batch(workload, ahead)
        if workload.step_ns:
            yield Pause(f"step.{item.number}", "step", workload.step_ns)
        if workload.reduces:
            name = f"gradients.{item.number}"
            elements = workload.gradients_bytes // workload.item_bytes
            yield StartCollective(name, "gradients", Kind.ALL_REDUCE, elements, "data")
            yield WaitFor(name)


def _prepare(workload: IngestWorkload, items: Sequence[Item]) -> Iterator[Action]:
    takes_ns = _takes_ns(workload, workload.transform_bytes_per_s)
    for item in items[: workload.prefetch]:
        yield _raw(workload, item)
    for place, item in enumerate(items):
        yield WaitFor(f"{RAW}.{item.label}")
        for ahead in items[place + workload.prefetch : place + workload.prefetch + 1]:
            yield _raw(workload, ahead)
        yield Pause(f"transform.{item.label}", "transform", takes_ns)
        if place >= workload.prefetch:
            yield WaitFor(f"{BATCH}.{items[place - workload.prefetch].label}")
        yield _batch(workload, item)
    for item in items[-workload.prefetch :]:
        yield WaitFor(f"{BATCH}.{item.label}")


def _read(workload: IngestWorkload, items: Sequence[Item]) -> Iterator[Action]:
    takes_ns = _takes_ns(workload, workload.read_bytes_per_s)
    held = workload.prefetch * workload.preprocessors
    for place, item in enumerate(items):
        yield Pause(f"read.{item.label}", "read", takes_ns)
        if place >= held:
            yield WaitFor(f"{RAW}.{items[place - held].label}")
        yield _raw(workload, item)
    for item in items[-held:]:
        yield WaitFor(f"{RAW}.{item.label}")


def _takes_ns(workload: IngestWorkload, bytes_per_s: int) -> int:
    return -(-workload.raw_bytes * 10**9 // bytes_per_s)


def bound_ns(workload: IngestWorkload) -> dict[str, int]:
    """The time of an iteration that each stage takes at least, were the others at once: its busiest
    host's work."""
    items = items_of(workload)
    return {
        "trainers": workload.batches * workload.step_ns,
        "preprocessors": _takes_ns(workload, workload.transform_bytes_per_s)
        * max(Counter(item.preprocessor for item in items).values()),
        "storage": _takes_ns(workload, workload.read_bytes_per_s)
        * max(Counter(item.storage for item in items).values()),
    }

"""Runs under seeds, what they say, and the smallest spec that says the same."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from emulator.linux.signals import is_interrupt
from emulator.prepared_guest import guest_prepared
from emulator.session import KernelKind, choose_kernel
from emulator.virtual.building.build import ensure_kernel
from emulator.virtual.failure import VirtualKernelError
from groundwire.pipeline import run, silent
from groundwire.search.variations import Fault, Orders, Within, variation, with_faults
from groundwire.studies.dask_engine import DaskEngine
from groundwire.studies.engine import Engine, JobEvent
from groundwire.studies.jobs import Job, emulation
from topologies.spec.spec import Spec, parse_dict
from topologies.units import format_time, parse_time_ns

_CASES = ".runs"
_MEANINGLESS = re.compile(
    r"0x[0-9a-f]+|/\S+/(?=[^/\s]+)|\d+\.\d+\.\d+\.\d+(:\d+)?|(?<=\D)\d[\d,.]*"
)
_SIGNATURE_CHARACTERS = 300
_MOST_HALVINGS = 6
_ERROR = re.compile(r"^(?:\[rank\d+\]: )?([A-Za-z_.]*(?:Error|Exception|Interrupt)\b.*)$", re.M)


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed: its seed, the kinds of its faults besides, and what was said."""

    seed: int
    spec: Spec
    said: str

    @property
    def signature(self) -> str:
        """The words of a failure without numbers, names of files and addresses: alike for one
        fault of a program."""
        return signature_of(self.said)


@dataclass
class Found:
    """A kind of failure: the seeds that have it, the first one's failure, and the smallest spec
    that has it too, after `tries` runs."""

    first: Failure
    seeds: list[int] = field(default_factory=list)
    smallest: Spec | None = None
    said: str = ""
    tries: int = 0


def signature_of(said: str) -> str:
    """The meaning of a failure's words: a hang by what is waited in, else the last error that is
    named, else the first line."""
    hang = re.search(r"the run hangs: .*|ranks? [\d, -]+ waits? in .*", said)
    errors = _ERROR.findall(said)
    if "the run hangs" in said:
        waits = re.findall(r"waits? in (\w+)", said)
        text = f"hang in {' '.join(sorted(set(waits)))}"
    elif errors:
        text = errors[-1]
    elif hang is not None:
        text = hang[0]
    else:
        text = said.partition("\n")[0]
    return _MEANINGLESS.sub("#", text)[:_SIGNATURE_CHARACTERS]


class Search:
    """A search below the directory `out`. `told` is called with each run's job and failure. A
    context manager: one guest boots for all runs that a copy of it serves, until the block ends."""

    def __init__(
        self,
        spec: Spec,
        varied: Sequence[str],
        within: Within,
        out: Path,
        kernel: KernelKind | None = None,
        engine: Engine | None = None,
        told: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._spec, self._varied, self._within = spec, tuple(varied), within
        self._out, self._kernel = out, kernel
        self._engine, self._told = engine or DaskEngine(), told
        self._held = ExitStack()

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *exception: object) -> None:
        self._held.close()

    def run(self, seeds: Sequence[int]) -> list[Found]:
        """Run each seed. Returns the kinds of failures, the one of most seeds first. Raises
        EngineError, SpecError."""
        specs = {seed: variation(self._spec, seed, self._varied, self._within) for seed in seeds}
        if choose_kernel(self._spec, self._kernel) == "virtual":
            with suppress(VirtualKernelError):  # each run says so
                kernel = ensure_kernel(lambda line: None)
                self._held.enter_context(guest_prepared(kernel, list(specs.values())))
        said = self._outcomes(list(specs.values()))
        found: dict[str, Found] = {}
        for (seed, spec), words in zip(specs.items(), said, strict=True):
            if words is not None:
                failure = Failure(seed, spec, words)
                kind = found.setdefault(failure.signature, Found(failure))
                kind.seeds.append(seed)
        return sorted(found.values(), key=lambda kind: -len(kind.seeds))

    def reduce(self, found: Found) -> None:
        """Make a failure smaller as long as it stays: first without faults, then in Linux's own
        order, with fewer ranks and shorter faults. Fills in `smallest` and `said`."""
        seed, spec = found.first.seed, found.first.spec
        orders = Orders(spec.virtual.order, spec.virtual.thread_order)
        own = len(self._spec.faults)
        faults: list[Fault] = spec.to_dict()["faults"][own:]
        found.smallest, found.said = spec, found.first.said

        def stays(kept: Sequence[Fault], orders: Orders) -> bool:
            smaller = with_faults(self._spec, seed, kept, orders)
            words = self._fails_alike(found, smaller)
            if words is not None:
                found.smallest, found.said = smaller, words
            return words is not None

        faults = next((kept for kept in _fewer(faults) if stays(kept, orders)), faults)
        while len(faults) > 1:
            less = (faults[:index] + faults[index + 1 :] for index in range(len(faults)))
            kept = next((each for each in less if stays(each, orders)), None)
            if kept is None:
                break
            faults = kept
        for name in ("threads", "ranks"):
            plainer = replace(orders, **{name: 0})
            if plainer != orders and stays(faults, plainer):
                orders = plainer
        self._with_fewer_ranks(found)
        self._made_shorter(found)

    def _with_fewer_ranks(self, found: Found) -> None:
        """Halve the ranks as long as the failure stays; who a fault is about stays as well."""
        while found.smallest is not None:
            plain = found.smallest.to_dict()
            workload = plain["workload"]
            each = workload.get("ranks_per_host", 1)
            ranks = workload["ranks"] // 2 // each * each
            named = [fault["rank"] for fault in plain["faults"] if fault.get("rank") is not None]
            if ranks < 2 or any(rank >= ranks for rank in named):
                return
            smaller = parse_dict(plain | {"workload": workload | {"ranks": ranks}})
            words = self._fails_alike(found, smaller)
            if words is None:
                return
            found.smallest, found.said = smaller, words

    def _made_shorter(self, found: Found) -> None:
        """Halve how long faults last as long as the failure stays; the spec's own last as long as
        it says."""
        assert found.smallest is not None
        for index in range(len(self._spec.faults), len(found.smallest.faults)):
            for _ in range(_MOST_HALVINGS):
                plain = found.smallest.to_dict()
                fault: Fault = plain["faults"][index]
                if fault.get("duration") is None or parse_time_ns(fault["duration"]) < 2:
                    break
                fault["duration"] = format_time(parse_time_ns(fault["duration"]) // 2)
                smaller = parse_dict(plain, found.smallest.name)
                words = self._fails_alike(found, smaller)
                if words is None:
                    break
                found.smallest, found.said = smaller, words

    def _fails_alike(self, found: Found, spec: Spec) -> str | None:
        """The words of a spec's run, where it fails as the first one did."""
        found.tries += 1
        place = self._out / _CASES
        words = None
        try:
            run(spec, kernel=self._kernel, out=place, pages=False, progress=silent)
        except RuntimeError as failure:
            if is_interrupt(failure):
                raise
            words = str(failure)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        outcome = "passes" if words is None else "fails"
        self._told(f"{spec.ranks} ranks, {len(spec.faults)} faults: {outcome}")
        return words if words is not None and signature_of(words) == found.first.signature else None

    def _outcomes(self, specs: Sequence[Spec]) -> list[str | None]:
        """The words of each spec's run when it failed; None where it did not."""
        jobs = [emulation(s, choose_kernel(s, self._kernel), f"seed {s.seed}") for s in specs]
        failures: dict[str, str] = {}

        def tell(event: JobEvent) -> None:
            if event.state == "failed":
                failures[event.job.key] = event.failure or "failed"
            if event.state != "running":
                self._told(f"{event.job.label} {event.state}")

        place = self._out / _CASES
        place.mkdir(parents=True, exist_ok=True)
        try:
            self._engine(_distinct(jobs), place, tell)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return [failures.get(job.key) for job in jobs]


def _distinct(jobs: Sequence[Job]) -> list[Job]:
    return list({job.key: job for job in jobs}.values())


def _fewer(faults: Sequence[Fault]) -> Iterator[list[Fault]]:
    """None of the faults, then those of each kind alone."""
    if not faults:
        return
    yield []
    kinds = dict.fromkeys(fault["kind"] for fault in faults)
    if len(kinds) > 1:
        for kind in kinds:
            yield [fault for fault in faults if fault["kind"] == kind]

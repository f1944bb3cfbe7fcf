"""A run directory, read: the only thing that analysis knows of a run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from analysis.runs.records import (
    CapturedRecord,
    ChunkRecord,
    CollectiveRecord,
    ComputeRecord,
    ConnectionRecord,
    EndRecord,
    Environment,
    FailureRecord,
    GpuRecord,
    GroupRecord,
    HandshakeRecord,
    IterationRecord,
    JobRecord,
    LifeRecord,
    LinkRecord,
    NoteRecord,
    ObserverRecord,
    QueuePairRecord,
    RankEvent,
    RankRecord,
    SocketRecord,
    StepRecord,
    UnfinishedRecord,
    UnseenRecord,
)
from topologies.fabrics.fabric import Fabric
from topologies.registration import function_at
from topologies.routing.routes import Routes
from topologies.spec.payload_scaling import wire_spec
from topologies.spec.spec import Spec, load_spec

if TYPE_CHECKING:
    from pandas import DataFrame

RESULT_SCHEMA = 2
"""The version of result.json's keys."""

_FRAMES = "analysis.report.data_frames:frames"
_RANK_EVENT: TypeAdapter[Any] = TypeAdapter(RankEvent)
_Model = TypeVar("_Model", bound=BaseModel)


class RunError(ValueError):
    """A run directory that is incomplete or damaged: which file, which line, what is wrong."""


@dataclass(frozen=True)
class RankLog:
    """The records of one rank, each kind in the order in which it was logged."""

    rank: int
    host: str
    address: str
    iterations: tuple[IterationRecord, ...]
    computes: tuple[ComputeRecord, ...]
    collectives: tuple[CollectiveRecord, ...]
    checks: int
    connections: tuple[ConnectionRecord, ...] = ()
    events: tuple[ComputeRecord | CollectiveRecord, ...] = ()
    """Computes and collectives as logged: a collective's line is written when its wait returns."""
    chunks: tuple[ChunkRecord, ...] = ()
    """The chunks of collectives that ran as programs."""
    observed: bool = False
    """Whether an observer in a program's rank told of its collectives."""
    notes: tuple[str, ...] = ()
    """The trouble of the observer."""
    queue_pairs: tuple[QueuePairRecord, ...] = ()
    """The queue pairs of ranks that send over RoCE."""
    groups: tuple[GroupRecord, ...] = ()
    """The process groups of a program's rank."""
    unfinished: tuple[UnfinishedRecord, ...] = ()
    unseen: tuple[UnseenRecord, ...] = ()
    captured: tuple[CapturedRecord, ...] = ()
    """Rank 0's, where collectives were found in captures."""
    gpus: tuple[GpuRecord, ...] = ()
    """The virtual GPUs of a program's rank."""
    ends: tuple[EndRecord, ...] = ()
    """The ends of a transport that count what they send."""
    steps: tuple[StepRecord, ...] = ()
    """The steps of a rank that may be killed."""
    lives: tuple[LifeRecord, ...] = ()
    """When it was started again."""
    joined_ns: int | None = None
    """When an observed rank had the connections of its default group."""
    sockets: tuple[SocketRecord, ...] = ()
    handshakes: tuple[HandshakeRecord, ...] = ()


@dataclass(frozen=True, repr=False)
class Run:
    """A run directory. Everything beyond spec, environment and ranks is read when asked for."""

    directory: Path
    spec: Spec
    environment: Environment
    ranks: tuple[RankLog, ...]
    """In order of rank; all of them."""
    port_counters: tuple[LinkRecord, ...]
    """Two for each link of the fabric, one for each direction."""
    jobs: tuple[JobOfRun, ...] = ()
    """The jobs of a run of several that did something, in order; empty for one workload. They share
    `environment` and `port_counters`. `ranks` are then those of all jobs that came to their end,
    numbered through, and names of groups begin with `JOB/`."""

    @property
    def fabric(self) -> Fabric:
        """The target fabric: of a run that was slowed down, the one that it stands for."""
        return self.spec.plan.fabric

    @property
    def routes(self) -> Routes:
        return self.spec.plan.routes

    @property
    def parts(self) -> tuple[tuple[str, Run], ...]:
        """The run of each job that came to its end, by name; a run with one workload is its own
        only part, without a name."""
        if not self.jobs:
            return (("", self),)
        return tuple((job.name, own) for job, own in self.finished)

    @property
    def finished(self) -> tuple[tuple[JobOfRun, Run], ...]:
        """The jobs that came to their end, each with its run."""
        return tuple((job, job.run) for job in self.jobs if job.run is not None)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Name of the host of each rank."""
        return tuple(self.environment.hosts)

    @cached_property
    def captures(self) -> tuple[Path, ...]:
        """The pcap files, in order of name."""
        return tuple(sorted((self.directory / "capture").glob("*.pcap")))

    @cached_property
    def result(self) -> dict[str, Any]:
        """result.json (docs/formats.md has its keys). Raises RunError."""
        return _result(self.directory / "result.json")

    @cached_property
    def frames(self) -> Mapping[str, DataFrame]:
        """The measurements as pandas data frames, by name of their table (docs/api.md); pandas is
        imported when one is asked for. Raises as `groundwire.frames`."""
        found: Mapping[str, DataFrame] = function_at(_FRAMES)(self)
        return found

    @property
    def collectives(self) -> DataFrame:
        """A row for each measured collective."""
        return self.frames["collectives"]

    @property
    def iterations(self) -> DataFrame:
        """A row for each iteration."""
        return self.frames["iterations"]

    @property
    def links(self) -> DataFrame:
        """A row for each direction of each link: its egress port, with what it sent and lost."""
        return self.frames["ports"]

    @property
    def flows(self) -> DataFrame:
        """A row for each flow in the captures. Raises KeyError where nothing was captured."""
        return self.frames["flows"]

    def __repr__(self) -> str:
        """A line: the name, the verdict, what ran where."""
        what = f"{self.environment.kernel} kernel, {len(self.hosts)} ranks"
        if not (self.directory / "result.json").exists():
            return f"<Run {self.spec.name}: no result yet, {what}, {self.directory}>"
        found = self.result
        verdict = "VALID" if found["valid"] else "NOT VALID"
        what += f", {len(found['collectives'])} collectives" if "collectives" in found else ""
        return f"<Run {self.spec.name}: {verdict}, {what}, {self.directory}>"

    def _repr_html_(self) -> str:
        """The same for a notebook, with the reasons where the run is not valid."""
        reasons = (
            ""
            if not (self.directory / "result.json").exists()
            else "".join(f"<li>{escape(reason)}</li>" for reason in self.result["invalid_reasons"])
        )
        return f"<p>{escape(repr(self)[1:-1])}</p>" + (f"<ul>{reasons}</ul>" if reasons else "")


@dataclass(frozen=True)
class JobOfRun:
    """A job of a run of several. `first` is the number of its first rank among those of all jobs;
    `run` is its own run directory, None where it failed: `failed` then says by whom and when."""

    name: str
    first: int
    start_ns: int
    run: Run | None
    record: JobRecord

    @property
    def ranks(self) -> range:
        """Their numbers among those of all jobs."""
        return range(self.first, self.first + len(self.record.hosts))

    @property
    def failed(self) -> FailureRecord | None:
        return self.record.failed


def load_run(directory: Path | str) -> Run:
    """Read a run directory, and those of its jobs. Raises RunError, which names the file and the
    line, or SpecError."""
    directory = Path(directory)
    if not directory.is_dir():
        raise RunError(f"{directory}: not a directory; a run directory is what `run` leaves behind")
    spec_path = directory / "spec.yaml"
    if not spec_path.exists():
        raise RunError(f"{directory}: no spec.yaml in it, so it is no run directory")
    if not (directory / "environment.json").exists():
        raise RunError(f"{directory}: {_why_no_figures(directory)}")
    logs = sorted((directory / "ranks").glob("*.jsonl"))
    spec = wire_spec(load_spec(spec_path))
    if spec.jobs:
        return _load_jobs(directory, spec)
    if not logs:
        raise RunError(f"{directory}: no ranks/*.jsonl in it; did the run fail?")
    environment = _model(directory / "environment.json", Environment)
    fabric = spec.plan.fabric
    ranks = connected(sorted((_rank_log(path) for path in logs), key=lambda log: log.rank))
    expected, found = range(len(environment.hosts)), [log.rank for log in ranks]
    if found != list(expected):
        raise RunError(f"{directory / 'ranks'}: expected ranks 0 to {expected[-1]}, found {found}")
    links = _links(directory, fabric)
    return Run(directory, spec, environment, ranks, links)


def _why_no_figures(directory: Path) -> str:
    hang = directory / "hang.json"
    if hang.exists():
        return f"this run hung and was ended, so it has no figures; {hang} says who waits for whom"
    return (
        "this run did not come to its end, so it has no figures; what its ranks wrote is in "
        f"{directory / 'ranks'}"
    )


def _links(directory: Path, fabric: Fabric) -> tuple[LinkRecord, ...]:
    links_path = directory / "links.jsonl"
    links = tuple(_records(links_path, TypeAdapter(LinkRecord)))
    ports = {port.interface for link in fabric.links for port in (link.a, link.b)}
    if missing := ports - {link.port for link in links}:
        raise RunError(
            f"{links_path}: {len(missing)} of the fabric's {len(ports)} ports are not in it, "
            f"such as {min(missing)}"
        )
    return links


def _load_jobs(directory: Path, spec: Spec) -> Run:
    environment = _model(directory / "environment.json", Environment)
    records = {record.name: record for record in environment.jobs}
    jobs = []
    for placed, job in zip(spec.plan.jobs, spec.jobs, strict=True):
        if job.idle:
            continue
        if job.name not in records:
            raise RunError(f"{directory / 'environment.json'}: no job {job.name} in it")
        record = records[job.name]
        run = None if record.failed else load_run(directory / "jobs" / job.name)
        jobs.append(JobOfRun(job.name, placed.first, job.start_ns, run, record))
    ranks = tuple(
        _among_all(log, job) for job in jobs if job.run is not None for log in job.run.ranks
    )
    links = _links(directory, spec.plan.fabric)
    return Run(directory, spec, environment, ranks, links, tuple(jobs))


def _among_all(log: RankLog, job: JobOfRun) -> RankLog:
    """A rank's log with the number that it has among those of all jobs."""
    everybody = list(job.ranks)

    def of_collective(record: CollectiveRecord) -> CollectiveRecord:
        ranks = everybody if record.ranks is None else [job.first + r for r in record.ranks]
        return record.model_copy(update={"group": f"{job.name}/{record.group}", "ranks": ranks})

    return replace(
        log,
        rank=job.first + log.rank,
        collectives=tuple(of_collective(record) for record in log.collectives),
        connections=tuple(
            record.model_copy(
                update={"group": f"{job.name}/{record.group}", "peer": job.first + record.peer}
            )
            for record in log.connections
        ),
        queue_pairs=tuple(
            record.model_copy(
                update={"group": f"{job.name}/{record.group}", "peer": job.first + record.peer}
            )
            for record in log.queue_pairs
        ),
        handshakes=(),
        events=(),
        chunks=(),
    )


def _rank_log(path: Path) -> RankLog:
    events = list(_records(path, _RANK_EVENT))
    if not events or not isinstance(events[0], RankRecord):
        raise RunError(f"{path}: line 1: expected the rank's own event")
    head = events[0]

    def only(kind: type[_Model]) -> tuple[_Model, ...]:
        return tuple(event for event in events if isinstance(event, kind))

    return RankLog(
        head.rank,
        head.host,
        head.address,
        only(IterationRecord),
        only(ComputeRecord),
        only(CollectiveRecord),
        sum(event.event == "check" for event in events),
        only(ConnectionRecord),
        tuple(event for event in events if isinstance(event, ComputeRecord | CollectiveRecord)),
        only(ChunkRecord),
        bool(only(ObserverRecord)),
        tuple(note.text for note in only(NoteRecord)),
        only(QueuePairRecord),
        only(GroupRecord),
        only(UnfinishedRecord),
        only(UnseenRecord),
        only(CapturedRecord),
        only(GpuRecord),
        only(EndRecord),
        only(StepRecord),
        only(LifeRecord),
        next((record.joined_ns for record in only(ObserverRecord)), None),
        only(SocketRecord),
        only(HandshakeRecord),
    )


def connected(logs: Sequence[RankLog]) -> tuple[RankLog, ...]:
    """The logs of all ranks, with connections where ranks that share hosts told of sockets alone:
    two ranks have one between them that both tell of."""
    told: dict[tuple[str, str, int, str, int], int] = {}
    for log in logs:
        for end in log.sockets:
            told[end.group, log.address, end.port, end.peer_address, end.peer_port] = log.rank
    found: dict[tuple[int, int, str], list[tuple[int, int]]] = defaultdict(list)
    for (group, address, port, peer_address, peer_port), rank in told.items():
        peer = told.get((group, peer_address, peer_port, address, port))
        if peer is not None and rank < peer:
            found[rank, peer, group].append((port, peer_port))
    by_rank: dict[int, list[ConnectionRecord]] = defaultdict(list)
    for (rank, peer, group), ends in sorted(found.items()):
        if len(ends) == 1:
            by_rank[rank].append(
                ConnectionRecord(
                    event="connection",
                    group=group,
                    peer=peer,
                    port=ends[0][0],
                    peer_port=ends[0][1],
                )
            )
    return tuple(replace(log, connections=(*log.connections, *by_rank[log.rank])) for log in logs)


def _records(path: Path, adapter: TypeAdapter[Any]) -> Iterator[Any]:
    try:
        with path.open() as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield adapter.validate_json(line)
                except ValidationError as error:
                    raise RunError(f"{path}: line {number}: {first_mistake(error)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def _model(path: Path, model: type[_Model]) -> _Model:
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except ValidationError as error:
        raise RunError(f"{path}: {first_mistake(error)}") from None


def _result(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict) or content.get("schema") != RESULT_SCHEMA:
        raise RunError(f"{path}: expected an object with schema {RESULT_SCHEMA}")
    return content


def read_json(path: Path) -> Any:
    """The contents of a JSON file of a run directory. Raises RunError."""
    try:
        return json.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise RunError(f"{path}: not JSON: {error}") from error


def first_mistake(error: ValidationError) -> str:
    """The mistake in a line or file, after the key if it is about one."""
    first = error.errors(include_url=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))


def unreadable(path: Path, error: OSError | UnicodeDecodeError) -> RunError:
    """The error to raise for a file that is missing, no file, or no text."""
    said = error.strerror if isinstance(error, OSError) else f"not a text file: {error.reason}"
    return RunError(f"{path}: {said}")

"""copies.jsonl: messages between ranks of one server that went as copies of memory, and whose they
were."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from analysis.runs.collectives import MeasuredCollective, collectives_of
from analysis.runs.records import CollectiveRecord, Record
from analysis.runs.run import Run, RunError, first_mistake, unreadable
from collectives.in_network.of_run import trees_of
from collectives.settings import settings_of

COPIES_FILE = "copies.jsonl"
_OF_TREE = "tree "


class CopyRecord(Record):
    """A copy: the message of a `group` with this `slot`, from member `source` to `destination`; of
    a group `tree N`, participants of that aggregation tree. `links` are directed: 2*i leads from
    end a to end b of link i, 2*i + 1 back. Both ends had posted it at `ready_ns`, its first port
    took it up at `begin_ns`, and it was complete at `end_ns`."""

    group: str
    slot: int
    source: int
    destination: int
    links: list[int] = Field(min_length=1)
    bytes: int = Field(ge=0)
    ready_ns: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class CopiesOf:
    """The copies of a collective: how many, of how many bytes, and how long they waited for their
    first ports, added up. Nanoseconds of the ranks' clock."""

    copies: int
    size_bytes: int
    waited_ns: int

    @classmethod
    def of(cls, records: Sequence[CopyRecord]) -> CopiesOf:
        """Those of some copies."""
        return cls(
            len(records),
            sum(record.bytes for record in records),
            sum(record.begin_ns - record.ready_ns for record in records),
        )


def copies_of(run: Run) -> tuple[CopyRecord, ...]:
    """The copies of a run, in the order of their ends; none where nothing was copied. Raises
    RunError."""
    path = run.directory / COPIES_FILE
    return _read(path) if path.exists() else ()


def _read(path: Path) -> tuple[CopyRecord, ...]:
    record = TypeAdapter(CopyRecord)
    found = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    for number, line in enumerate(lines, start=1):
        try:
            found.append(record.validate_json(line))
        except ValidationError as error:
            raise RunError(f"{path}: line {number}: {first_mistake(error)}") from None
    return tuple(found)


def copied_between(run: Run) -> Mapping[tuple[int, int], int]:
    """Sender and receiver, as numbers of ranks -> the bytes of copies; without those from and to
    switches. Raises RunError."""
    ports = {}
    for rank, host in enumerate(run.hosts):
        for link in run.fabric.links_of[host]:
            if link.link_class == run.fabric.copied_class:
                ports[2 * link.index], ports[2 * link.index + 1] = rank, rank
    found: Counter[tuple[int, int]] = Counter()
    for copy in copies_of(run):
        if len(copy.links) == 2:
            first, second = copy.links
            found[ports[first], ports[second]] += copy.bytes
    return found


def copies_by_collective(run: Run) -> Mapping[tuple[str, str], CopiesOf]:
    """(group, id) of each measured collective with copies -> these. Copies of alignments belong to
    none of them. Raises RunError."""
    copies = copies_of(run)
    if not copies:
        return {}
    of_group: dict[str, list[CopyRecord]] = defaultdict(list)
    of_members: dict[tuple[int, ...], list[CopyRecord]] = defaultdict(list)
    trees = trees_of(settings_of(run.spec)) if not run.jobs else ()
    for copy in copies:
        if copy.group.startswith(_OF_TREE):
            of_members[trees[int(copy.group.removeprefix(_OF_TREE))].members].append(copy)
        else:
            of_group[copy.group].append(copy)
    found = {}
    for collective in collectives_of(run):
        slots = _slots(collective)
        mine = of_group[collective.group] + of_members[tuple(collective.ranks)]
        owned = [copy for copy in mine if copy.slot in slots]
        if owned:
            found[collective.group, collective.id] = CopiesOf.of(owned)
    return found


def _slots(collective: MeasuredCollective) -> range:
    record: CollectiveRecord = next(iter(collective.by_rank.values()))
    if record.slots is None:
        return range(0)
    first, count = record.slots
    return range(first, first + count)

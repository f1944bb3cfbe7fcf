"""A run with virtual GPUs as graphs: each kernel, copy and collective a node on its stream.

A node waits for the one before it on its stream, for those of other streams that its stream was
told to wait for (events, and the end of collectives), and for those that the host had waited for
before it launched it. A group's collectives wait for each other. The log has all of that, as
launches are numbered. A node of the host takes the time between where the host launched later than
all of these were over. A node that waits for nothing in the iteration begins when it did, behind a
node of the host's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, GraphNode
from analysis.runs.collectives import call_of_record
from analysis.runs.kernels import read_kernels
from analysis.runs.records import CollectiveRecord
from analysis.runs.run import RankLog, Run, RunError
from collectives.kinds import Kind
from workloads.virtual_gpu.interpreter.kineto import KernelEvent


def graphs_of_gpus(run: Run, iteration: int) -> list[Graph]:
    """Every rank's graph of one iteration: of what its host launched in it. Starts count from the
    first of all ranks. Raises RunError where the log does not number launches, or lacks some."""
    launches = [_launches(run, log, iteration) for log in run.ranks]
    origin_ns = min((each.start_ns for own in launches for each in own), default=0)
    return [tuple(_nodes(run, own, origin_ns)) for own in launches]


@dataclass(frozen=True, slots=True)
class _Launch:
    """A launch of the host's: a kernel or a copy, or a collective; several that go together are
    one."""

    number: int
    stream: int
    after: tuple[int, ...]
    launched_ns: int
    start_ns: int
    end_ns: int
    what: KernelEvent | tuple[CollectiveRecord, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups whose collectives it is; messages of two ranks have a line of their own."""
        if isinstance(self.what, KernelEvent):
            return ()
        names = (each.group for each in self.what if each.kind != Kind.SEND_RECV)
        return tuple(dict.fromkeys(names))


def _launches(run: Run, log: RankLog, iteration: int) -> list[_Launch]:
    """The launches of an iteration, in order."""
    counts = {each.index: each.launches for each in log.iterations}
    first, behind = counts.get(iteration - 1, 0), counts.get(iteration)
    if first is None or behind is None:
        raise RunError(
            f"{run.directory}: rank {log.rank} does not say what it launched in iteration "
            f"{iteration}: it is a run of an older version, whose launches have no numbers"
        )
    found = [
        _Launch(k.number, k.stream, k.after, k.launched_ns, k.start_ns, k.end_ns, k)
        for k in read_kernels(run, log.rank)
        if first <= k.number < behind
    ]
    together: dict[int, list[CollectiveRecord]] = defaultdict(list)
    for record in log.collectives:
        if record.number is not None and first <= record.number < behind:
            together[record.number].append(record)
    for number, records in together.items():
        one = records[0]
        posted_ns = one.start_ns if one.posted_ns is None else one.posted_ns
        found.append(
            _Launch(
                number, one.stream or 0, tuple(one.after), posted_ns, one.start_ns, one.end_ns,
                tuple(records),
            )
        )  # fmt: skip
    if len(found) != behind - first:
        raise RunError(
            f"{run.directory}: rank {log.rank} launched {behind - first:,} kernels and collectives "
            f"in iteration {iteration}, and its log has {len(found):,}: so many are not kept, or a "
            "collective was not seen to its end"
        )
    return sorted(found, key=lambda each: each.number)


def _nodes(run: Run, launches: Sequence[_Launch], origin_ns: int) -> Iterator[GraphNode]:
    ids: dict[int, tuple[int, ...]] = {}
    over_ns: dict[int, int] = {}
    last: dict[int | str, int] = {}
    made = 0
    for each in launches:
        lines: tuple[int | str, ...] = (each.stream, *each.groups)
        before = list(dict.fromkeys(last[line] for line in lines if line in last))
        before += [number for number in each.after if number in ids and number not in before]
        after = tuple(id for number in before for id in ids[number])
        ready_ns = max((over_ns[number] for number in before), default=origin_ns)
        # Behind what was launched before the iteration it begins when it did.
        known_ns = each.launched_ns if before else each.start_ns
        late_ns = known_ns - ready_ns
        if late_ns > 0:
            start_ns = ready_ns - origin_ns
            yield ComputeNode(
                id=made, name="host", after=after, start_ns=start_ns, duration_ns=late_ns,
                on_host=True,
            )  # fmt: skip
            after, made = (made,), made + 1
        nodes = tuple(_of_launch(run, each, made, after, origin_ns))
        yield from nodes
        ids[each.number] = tuple(node.id for node in nodes)
        over_ns[each.number] = each.end_ns
        last |= dict.fromkeys(lines, each.number)
        made += len(nodes)


def _of_launch(
    run: Run, launch: _Launch, first: int, after: tuple[int, ...], origin_ns: int
) -> Iterator[GraphNode]:
    start_ns, duration_ns = launch.start_ns - origin_ns, launch.end_ns - launch.start_ns
    what = launch.what
    if isinstance(what, KernelEvent):
        yield ComputeNode(
            id=first,
            name=what.operator,
            after=after,
            start_ns=start_ns,
            duration_ns=duration_ns,
            stream=launch.stream,
            flops=what.flops,
            memory_bytes=what.bytes,
        )
        return
    for id, record in enumerate(what, first):
        yield CollectiveNode(
            id=id,
            name=record.id,
            after=after,
            start_ns=start_ns,
            duration_ns=duration_ns,
            stream=launch.stream,
            call=call_of_record(run, record),
        )

"""The answer of the packet engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from simulation.columns import Column


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """One end of a connection at the end of a run: segments that it sent again, the bytes that it
    has received in order, been given to send, and had acknowledged; its round trip in microseconds,
    smoothed, and its slow start threshold in segments."""

    retransmitted: int
    received: int
    written: int
    acknowledged: int
    srtt_us: float
    ssthresh: int


@dataclass(frozen=True, slots=True)
class Leap:
    """An exchange that was leapt over, or a part of one: its first message, how far off its end may
    be, and how many messages were leapt over."""

    first_message: int
    error_ns: int
    messages: int


@dataclass(frozen=True)
class EngineTimeline:
    """Columns as engine/README.md has them, and what they say."""

    columns: Mapping[str, Column]

    @property
    def stamps(self) -> Column:
        """When each stamp was made, in nanoseconds; -1 for never."""
        return self.columns["stamps"]

    @property
    def drops(self) -> Column:
        """Packets that each directed link's port dropped."""
        return self.columns["port.drops"]

    @property
    def marks(self) -> Column:
        """Packets that each directed link's port marked."""
        return self.columns["port.marks"]

    @property
    def messages_ns(self) -> tuple[Column, Column]:
        """When each message was posted by its sender and received, where the scenario asked for
        it; -1 for never."""
        return self.columns["message.posted_ns"], self.columns["message.received_ns"]

    @cached_property
    def leaps(self) -> Sequence[Leap]:
        """The leaps, where the scenario asked for them, in order of their ends."""
        if "leaps.first_message" not in self.columns:
            return ()
        columns = (
            self.columns[f"leaps.{name}"].tolist()
            for name in ("first_message", "error_ns", "messages")
        )
        return tuple(Leap(*row) for row in zip(*columns, strict=True))

    @property
    def packets(self) -> int:
        """Packets that left hosts."""
        return int(self.columns["packets"][0])

    @property
    def hops(self) -> int:
        """Passages of ports."""
        return int(self.columns["hops"][0])

    @property
    def processor_s(self) -> float:
        """The processor time that it took."""
        return float(self.columns["processor_s"][0])

    @cached_property
    def ends(self) -> Mapping[tuple[int, int], ConnectionEnd]:
        """The end of each connection at the first of a pair of ends."""
        names = ("source", "destination", "retransmitted", "received", "written", "acknowledged")
        rows = zip(
            *(self.columns[f"end.{name}"].tolist() for name in names),
            (self.columns["end.srtt_us_x8"] / 8).tolist(),
            self.columns["end.ssthresh"].tolist(),
            strict=True,
        )
        return {(row[0], row[1]): ConnectionEnd(*row[2:]) for row in rows}

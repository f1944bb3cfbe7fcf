"""The cost of moving data between a rank's memory and its network adaptor.

ASTRA-sim has two models (system/MemBus.cc): a fixed delay, and with model-shared-bus a LogGP bus
(system/LogGP.cc) on which transfers both ways and their reductions queue for each other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from analysis.astra.events import Callback, LocalEvents
from analysis.astra.network.mailbox import wrap_to_int32

_FAST_NS = 10


@dataclass(frozen=True, slots=True)
class BusParameters:
    """LogGP: latency, overhead and gap in whole nanoseconds, gap per byte; `reduction_delay` is
    local-reduction-delay, nanoseconds per 100 bytes."""

    latency_ns: int = 0
    overhead_ns: int = 0
    gap_ns: int = 0
    gap_per_byte_ns: float = 0.0
    reduction_delay_ns: int = 1


class Crossing(NamedTuple):
    """A transfer to memory or from it. `fast` ones take 10 ns and share nothing, `processed`
    ones are reduced at the other side, `send_back` ones return from there, where the model knows
    of it."""

    to_memory: bool
    fast: bool
    size_bytes: int
    processed: bool
    send_back: bool


class Bus(Protocol):
    """A rank's way between network adaptor and memory."""

    def cross(self, crossing: Crossing, callback: Callback, argument: Any) -> None:
        """Call `callback(argument)` when its bytes have got across."""


class FixedDelay:
    """Every transfer takes the endpoint delay, however many there are."""

    def __init__(self, local: LocalEvents, endpoint_delay_ns: int) -> None:
        self._after = local.after
        self._delay_ns = endpoint_delay_ns

    def cross(self, crossing: Crossing, callback: Callback, argument: Any) -> None:
        """As Bus.cross."""
        self._after(_FAST_NS if crossing.fast else self._delay_ns, callback, argument)


class SharedBus:
    """Two LogGP ends that send to each other; behind the adaptor's a second bus to its memory."""

    def __init__(self, local: LocalEvents, parameters: BusParameters) -> None:
        self._local = local
        behind = _Pair(local, replace(parameters, gap_per_byte_ns=_BEHIND_GAP_PER_BYTE_NS), None)
        self._pair = _Pair(local, parameters, behind)

    def cross(self, crossing: Crossing, callback: Callback, argument: Any) -> None:
        """As Bus.cross."""
        if crossing.fast:
            self._local.after(_FAST_NS, callback, argument)
            return
        size_bytes = wrap_to_int32(crossing.size_bytes, "model-shared-bus")
        end = self._pair.adaptor if crossing.to_memory else self._pair.memory
        end.request(
            _Transfer(size_bytes, crossing.processed, crossing.send_back, callback, argument)
        )


_BEHIND_GAP_PER_BYTE_NS = 0.0038
"""The time per byte of the bus behind the adaptor (MemBus.cc)."""

_TURNS = 8
"""Transfers that one end may send before the other's go first (LogGP.cc, THRESHOLD)."""


@dataclass(slots=True)
class _Transfer:
    size_bytes: int
    processed: bool
    send_back: bool
    callback: Callback
    argument: Any


class _State(Enum):
    FREE = auto()
    SENDING = auto()
    RECEIVING = auto()


@dataclass(slots=True)
class _Pair:
    """Both ends of a bus."""

    local: LocalEvents
    parameters: BusParameters
    behind: _Pair | None
    adaptor: _End = field(init=False)
    memory: _End = field(init=False)

    def __post_init__(self) -> None:
        self.adaptor = _End(self.local, self.parameters, self.behind)
        self.memory = _End(self.local, self.parameters, None)
        self.adaptor.partner = self.memory
        self.memory.partner = self.adaptor


class _End:
    """One end: sends, receives, reduces, one after the other; only the adaptor has a bus behind."""

    partner: _End

    def __init__(self, local: LocalEvents, parameters: BusParameters, behind: _Pair | None) -> None:
        self._local = local
        self._parameters = parameters
        self._behind = behind
        self._state = _State.FREE
        self._before = _State.FREE
        self._last_ns = 0
        self._reducing = False
        self._turns = 0
        self._sends: deque[_Transfer] = deque()
        self._receives: deque[_Transfer] = deque()
        self._reductions: deque[_Transfer] = deque()

    def request(self, transfer: _Transfer) -> None:
        """Queue a transfer to the other end; the adaptor fetches it from behind first."""
        if self._behind is not None:
            self._fetch(transfer)
            return
        self._sends.append(transfer)
        self._send_if_free()

    def _fetch(self, transfer: _Transfer) -> None:
        """From behind the adaptor, then on the way to the other end."""
        assert self._behind is not None
        size = transfer.size_bytes
        self._behind.memory.request(_Transfer(size, False, False, self._fetched, transfer))

    def _fetched(self, transfer: _Transfer) -> None:
        self._sends.append(transfer)
        self._send_if_free()

    def _send_if_free(self) -> None:
        if self._state is not _State.FREE or not self._sends:
            return
        partner = self.partner
        if self._turns > _TURNS and partner._sends and partner._turns <= _TURNS:
            partner._send_if_free()
        else:
            self._send_next()

    def _send_next(self) -> None:
        parameters = self._parameters
        since_ns = self._local.now - self._last_ns
        offset_ns = parameters.overhead_ns
        if (
            self._before is _State.SENDING
            and parameters.overhead_ns + since_ns <= parameters.gap_ns
        ):
            offset_ns = parameters.gap_ns - since_ns
        transfer = self._sends.popleft()
        body_ns = parameters.gap_per_byte_ns * (transfer.size_bytes - 1)
        self.partner._expect(transfer, offset_ns)
        self._state = _State.SENDING
        self._local.after(int(offset_ns + body_ns), self._sent, None)

    def _expect(self, transfer: _Transfer, offset_ns: int) -> None:
        parameters = self._parameters
        self._receives.append(transfer)
        self._before = self._state
        self._state = _State.RECEIVING
        self._turns = 0
        body_ns = (transfer.size_bytes - 1) * parameters.gap_per_byte_ns
        whole_ns = offset_ns + body_ns + parameters.latency_ns + parameters.overhead_ns
        self._local.after(int(whole_ns), self._received, None)

    def _sent(self, _: None) -> None:
        self._last_ns = self._local.now
        self._before = self._state
        self._state = _State.FREE
        self._turns += 1
        self._send_if_free()

    def _received(self, _: None) -> None:
        self._last_ns = self._local.now
        self._before = self._state
        if len(self._receives) < 2:
            self._state = _State.FREE
        transfer = self._receives[0]
        if transfer.processed:
            transfer.processed = False
            self._receives.popleft()
            if self._behind is None:
                self._reductions.append(transfer)
                self._reduce_if_free()
            else:
                self._store(transfer, self._stored_for_reduction, send_back=True)
                self._reduce_if_free()
        elif transfer.send_back:
            transfer.send_back = False
            self._receives.popleft()
            self._return(transfer)
        else:
            self._retire(transfer)
            self._receives.popleft()
        self._send_if_free()

    def _reduce_if_free(self) -> None:
        if not self._reducing and self._reductions:
            self._reducing = True
            delay = self._parameters.reduction_delay_ns
            self._local.after(
                self._reductions[0].size_bytes // 100 * delay + 50, self._reduced, None
            )

    def _reduced(self, _: None) -> None:
        self._reducing = False
        transfer = self._reductions[0]
        if transfer.send_back:
            transfer.send_back = False
            self._reductions.popleft()
            self._return(transfer)
        else:
            self._retire(transfer)
            self._reductions.popleft()
        self._reduce_if_free()
        self._send_if_free()

    def _stored_for_reduction(self, transfer: _Transfer) -> None:
        self._reductions.append(transfer)
        self._reduce_if_free()
        self._send_if_free()

    def _return(self, transfer: _Transfer) -> None:
        """Back to the end that it came from."""
        if self._behind is None:
            self._sends.append(transfer)
        else:
            self._store(transfer, self._fetched, send_back=True)

    def _retire(self, transfer: _Transfer) -> None:
        """At its end, and behind it."""
        if self._behind is None:
            transfer.callback(transfer.argument)
        else:
            self._store(transfer, self._retired, send_back=False)

    def _retired(self, transfer: _Transfer) -> None:
        transfer.callback(transfer.argument)
        self._send_if_free()

    def _store(self, transfer: _Transfer, callback: Callback, *, send_back: bool) -> None:
        """To the memory behind the adaptor; `send_back` waits for its answer."""
        assert self._behind is not None
        stored = _Transfer(transfer.size_bytes, False, send_back, callback, transfer)
        self._behind.adaptor.request(stored)

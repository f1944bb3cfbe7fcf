"""The pairing of sends and receives, as both of ASTRA-sim's analytical backends decide it."""

from collections import deque
from typing import Any, Protocol

from analysis.astra.errors import AstraRefused
from analysis.astra.events import Callback, EventQueue

Way = tuple[int, int, int, int]
"""Source, destination, tag and size in bytes of a message."""


class MessageInFlight:
    """A message between two ranks: made by whichever of send and receive comes first."""

    __slots__ = (
        "arrived",
        "on_received",
        "on_sent",
        "received_argument",
        "sent_argument",
        "shift",
        "way",
    )

    def __init__(self) -> None:
        self.way: Any = None  # what the backend keeps while the message is under way
        self.shift = 0  # see lockstep.py
        self.arrived = False
        self.on_sent: Callback | None = None
        self.sent_argument: Any = None
        self.on_received: Callback | None = None
        self.received_argument: Any = None


class MessageTransport(Protocol):
    """How ranks exchange messages."""

    def send(self, way: Way, on_sent: Callback | None = None, argument: Any = None) -> None:
        """Send now, from the way's source; `on_sent(argument)` is called on arrival."""

    def receive(self, way: Way, on_received: Callback, argument: Any = None) -> None:
        """Post a receive, at the way's destination; `on_received(argument)` is called when its
        message is there."""

    def order_matters(self) -> None:
        """Called when the outcome depends on the order of two events of one nanosecond."""
        return


_Unmatched = dict[Way, deque[MessageInFlight]]


def _match(way: Way, others: _Unmatched, own: _Unmatched) -> MessageInFlight:
    """The oldest of the other side's halves, or a new one that waits for its other half."""
    waiting = others.get(way)
    if waiting is None:
        message = MessageInFlight()
        queue = own.get(way)
        if queue is None:
            own[way] = deque((message,))
        else:
            queue.append(message)
        return message
    message = waiting.popleft()
    if not waiting:
        del others[way]
    return message


class Mailbox(MessageTransport):
    """The i-th send of some way meets the i-th receive of that way.

    Backends add how long the way takes. A send completes when its message arrives; a receive
    completes then too or, when posted later, in the nanosecond of its posting.
    """

    def __init__(self, events: EventQueue) -> None:
        self.events = events
        # Unmatched sends or unmatched receives of a key; never both at once.
        self._sends: _Unmatched = {}
        self._receives: _Unmatched = {}

    def send(self, way: Way, on_sent: Callback | None = None, argument: Any = None) -> None:
        """As MessageTransport.send. Raises AstraRefused for what the original asserts against."""
        source, destination, _, size_bytes = way
        if size_bytes <= 0:
            raise AstraRefused(
                f"rank {source} sends {size_bytes} bytes to rank {destination}: "
                "ASTRA-sim aborts on messages without bytes"
            )
        message = _match(way, self._receives, self._sends)
        message.on_sent = on_sent
        message.sent_argument = argument
        self._transmit(message, source, destination, size_bytes)

    def receive(self, way: Way, on_received: Callback, argument: Any = None) -> None:
        """As MessageTransport.receive."""
        message = _match(way, self._sends, self._receives)
        if message.arrived:
            self.events.at(self.events.now, on_received, argument)
            return
        message.on_received = on_received
        message.received_argument = argument

    def _deliver(self, message: MessageInFlight) -> None:
        """The message has arrived: the sender's callback first, then the receiver's."""
        if message.on_received is None:
            message.arrived = True
            if message.on_sent is not None:
                message.on_sent(message.sent_argument)
            return
        if message.on_sent is not None:
            message.on_sent(message.sent_argument)
        message.on_received(message.received_argument)

    def _transmit(
        self, message: MessageInFlight, source: int, destination: int, size_bytes: int
    ) -> None:
        raise NotImplementedError


_RANGE = 1 << 32


def wrap_to_int32(size_bytes: int, where: str) -> int:
    """The rest of a size. Raises AstraRefused where that is negative, naming `where`."""
    kept = (size_bytes + _RANGE // 2) % _RANGE - _RANGE // 2
    if kept < 0:
        raise AstraRefused(
            f"a message of {size_bytes} bytes with {where}: ASTRA-sim keeps its size in 32 bits "
            "with a sign, and what it does with the rest has no meaning"
        )
    return kept

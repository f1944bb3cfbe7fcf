"""ASTRA-sim's rendezvous protocol (`--rendezvous-protocol`): the receiver asks before a send."""

from typing import Any

from analysis.astra.events import Callback
from analysis.astra.network.mailbox import MessageTransport, Way, wrap_to_int32

_REQUEST_BYTES = 8192
_REQUEST_TAG = 1_000_000_000
_NAME = "the rendezvous protocol"


class Rendezvous(MessageTransport):
    """A network on which a send waits for the receiver's 8 KiB request, and a receive is posted
    when that request has arrived (Sys::rendezvous_sim_send and _recv). Meanwhile the size is kept
    in 32 bits (SimSendCaller, SimRecvCaller)."""

    def __init__(self, network: MessageTransport) -> None:
        self._network = network

    def send(self, way: Way, on_sent: Callback | None = None, argument: Any = None) -> None:
        """As Mailbox.send."""
        way = _kept(way)
        self._network.receive(_request(way), lambda _: self._network.send(way, on_sent, argument))

    def receive(self, way: Way, on_received: Callback, argument: Any = None) -> None:
        """As Mailbox.receive."""
        way = _kept(way)
        self._network.send(
            _request(way), lambda _: self._network.receive(way, on_received, argument)
        )


def _kept(way: Way) -> Way:
    source, destination, tag, size_bytes = way
    return source, destination, tag, wrap_to_int32(size_bytes, _NAME)


def _request(way: Way) -> Way:
    """The receiver's request, the other way."""
    source, destination, tag, _ = way
    return destination, source, tag + _REQUEST_TAG, _REQUEST_BYTES

"""ASTRA-sim's rendezvous protocol (`--rendezvous-protocol`): the receiver asks before a send."""

from functools import partial
from typing import Any

from analysis.astra.events import Callback
from analysis.astra.int32 import kept_in_32_bits
from analysis.astra.mailbox import Transport

_REQUEST_BYTES = 8192
_REQUEST_TAG = 1_000_000_000
_NAME = "the rendezvous protocol"


class Rendezvous(Transport):
    """A network on which a send waits for the receiver's 8 KiB request, and a receive is posted
    when that request has arrived (Sys::rendezvous_sim_send and _recv). Meanwhile the size is kept
    in 32 bits (SimSendCaller, SimRecvCaller)."""

    def __init__(self, network: Transport) -> None:
        self._network = network

    def send(
        self,
        source: int,
        destination: int,
        size_bytes: int,
        tag: int,
        on_sent: Callback | None = None,
        argument: Any = None,
    ) -> None:
        """As Mailbox.send."""
        size_bytes = kept_in_32_bits(size_bytes, _NAME)
        send = partial(self._network.send, source, destination, size_bytes, tag, on_sent, argument)
        self._network.receive(
            source, destination, _REQUEST_BYTES, tag + _REQUEST_TAG, lambda _: send()
        )

    def receive(
        self,
        destination: int,
        source: int,
        size_bytes: int,
        tag: int,
        on_received: Callback,
        argument: Any = None,
    ) -> None:
        """As Mailbox.receive."""
        size_bytes = kept_in_32_bits(size_bytes, _NAME)
        receive = partial(
            self._network.receive, destination, source, size_bytes, tag, on_received, argument
        )
        self._network.send(
            destination, source, _REQUEST_BYTES, tag + _REQUEST_TAG, lambda _: receive()
        )

"""ASTRA-sim's rendezvous protocol (`--rendezvous-protocol`): the receiver asks before a send."""

from functools import partial
from typing import Any

from analysis.astra.errors import AstraRefused
from analysis.astra.events import Callback
from analysis.astra.mailbox import Transport

_REQUEST_BYTES = 8192
_REQUEST_TAG = 1_000_000_000
_INT_RANGE = 1 << 32


class Rendezvous(Transport):
    """A network on which a send waits for the receiver's 8 KiB request, and a receive is posted
    when that request has arrived (Sys::rendezvous_sim_send and _recv)."""

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
        size_bytes = _kept(size_bytes)
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
        size_bytes = _kept(size_bytes)
        receive = partial(
            self._network.receive, destination, source, size_bytes, tag, on_received, argument
        )
        self._network.send(
            destination, source, _REQUEST_BYTES, tag + _REQUEST_TAG, lambda _: receive()
        )


def _kept(size_bytes: int) -> int:
    """What is left of a size in the original, which keeps it in a 32-bit signed integer until the
    request has come (SimSendCaller, SimRecvCaller). Raises AstraRefused where that is negative."""
    kept = (size_bytes + _INT_RANGE // 2) % _INT_RANGE - _INT_RANGE // 2
    if kept < 0:
        raise AstraRefused(
            f"a message of {size_bytes} bytes with the rendezvous protocol: ASTRA-sim keeps its "
            "size in 32 bits with a sign, and what it does with the rest has no meaning"
        )
    return kept

"""How long an iteration will take in real time, from what its ranks are to send and how fast that
goes on this machine."""

from __future__ import annotations

_LEAST_S = 3.0
"""A rate counts once traffic has gone on for so long."""
_BEGUN = 0.005
"""Traffic has begun when this share of an iteration has been sent: ranks meet before that."""
_LEFT_OVER = 0.1
"""The share of an iteration that counts as not sent yet when the next one is told."""


class TrafficLeft:
    """Fed with what an iteration is to send and what has been sent; real seconds of one clock."""

    def __init__(self) -> None:
        self.iteration: int | None = None
        self.to_send_bytes = 0
        self._sent = self._goal = self._before = 0
        self._since: tuple[float, int] | None = None
        self._rate_per_s: float | None = None
        self._counted_apart = False

    def told(self, iteration: int, to_send_bytes: int) -> None:
        """An iteration is to send so much, as far as is known."""
        if iteration == self.iteration:
            self._goal += to_send_bytes - self.to_send_bytes
        else:
            left = max(0, self._goal - self._sent)
            behind = left if left > _LEFT_OVER * self.to_send_bytes else 0
            self._goal = self._sent + behind + to_send_bytes
            self._before, self._since = self._sent, None
        self.iteration, self.to_send_bytes = iteration, to_send_bytes

    def sent(self, sent_bytes: int, now_s: float, apart: bool = False) -> None:
        """So much has been sent in all; `apart` by a network that counts for itself, beside which
        the kernel's ports do not matter."""
        if self._counted_apart and not apart:
            return
        self._counted_apart = apart
        self._sent = max(self._sent, sent_bytes)
        if self._since is None:
            if self.to_send_bytes and self._sent - self._before >= _BEGUN * self.to_send_bytes:
                self._since = now_s, self._sent
            return
        began_s, before = self._since
        if now_s - began_s >= _LEAST_S and self._sent > before:
            self._rate_per_s = (self._sent - before) / (now_s - began_s)

    def left_s(self) -> float | None:
        """Real seconds until what is known to be sent has been; None while no rate is known."""
        if self.iteration is None or not self._rate_per_s:
            return None
        return max(0, self._goal - self._sent) / self._rate_per_s

    def in_words(self) -> str:
        """Such as "iteration 0: 12.4 GB to send, about 14 min at 1.1 GB of traffic a minute"."""
        said = f"iteration {self.iteration}: {_bytes(self.to_send_bytes)} to send"
        left_s = self.left_s()
        if left_s is None or self._rate_per_s is None:
            return said
        rate = _bytes(self._rate_per_s * 60)
        return f"{said}, about {_time(left_s)} at {rate} of traffic a minute"


def _bytes(size: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 1e3:.1f} KB"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

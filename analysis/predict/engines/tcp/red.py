"""Random early detection as a port of the emulator does it, with the numbers that it draws."""

from __future__ import annotations

from analysis.predict.engines.tcp.packet import LOST, Packet
from analysis.predict.engines.tcp.ports import OVERHEAD_BYTES, SECOND_NS, Port
from topologies.spec.queue_section import Red

_U32 = 0xFFFFFFFF
_ETHERNET_BYTES = 14


class PortRandom:
    """Linux's prandom_u32_state: a combined Tausworthe generator (lib/random32.c, after L'Ecuyer,
    Maximally Equidistributed Combined Tausworthe Generators, 1996)."""

    __slots__ = ("_s1", "_s2", "_s3", "_s4")

    def __init__(self, seed: int) -> None:
        first = (seed >> 32 ^ seed << 10 ^ seed) & _U32
        least = 2, 8, 16, 128
        self._s1, self._s2, self._s3, self._s4 = (first + m if first < m else first for m in least)

    def u32(self) -> int:
        """The next number, of 32 bits."""
        s1, s2, s3, s4 = self._s1, self._s2, self._s3, self._s4
        self._s1 = s1 = (s1 & 4294967294) << 18 & _U32 ^ (s1 << 6 & _U32 ^ s1) >> 13
        self._s2 = s2 = (s2 & 4294967288) << 2 & _U32 ^ (s2 << 2 & _U32 ^ s2) >> 27
        self._s3 = s3 = (s3 & 4294967280) << 7 & _U32 ^ (s3 << 13 & _U32 ^ s3) >> 21
        self._s4 = s4 = (s4 & 4294967168) << 13 & _U32 ^ (s4 << 3 & _U32 ^ s4) >> 12
        return s1 ^ s2 ^ s3 ^ s4


def q32(share: float) -> int:
    """A probability as ports take it: 2^32 - 1 stands for 1."""
    return min(round(share * 2**32), _U32)


class RedPort(Port):
    """RED on the average backlog (Floyd and Jacobson 1993) in the integers of gwport_red.c. The
    draws are those of the port's own generator, whose seed the spec gives."""

    __slots__ = (
        "_average_q16",
        "_ecn",
        "_kmax_q16",
        "_kmin_q16",
        "_packet_ns",
        "_pmax_q32",
        "_random",
        "_weight_q32",
    )

    def __init__(self, rate_bps: int, delay_ns: int, red: Red, mtu_bytes: int, seed: int) -> None:
        super().__init__(rate_bps, delay_ns, red.buffer_bytes)
        self._kmin_q16, self._kmax_q16 = red.kmin_bytes << 16, red.kmax_bytes << 16
        self._pmax_q32, self._weight_q32 = q32(red.pmax), q32(red.weight)
        self._ecn = red.ecn
        self._average_q16 = 0
        bits = 8 * (mtu_bytes + _ETHERNET_BYTES + OVERHEAD_BYTES)
        self._packet_ns = max(1, bits * SECOND_NS // rate_bps)
        self._random = PortRandom(seed)

    def send(self, packet: Packet, now: int) -> int:
        """As of `Port.send`; the average falls while the port is idle."""
        ready = self.free_ns + 1 if self.free_frac else self.free_ns
        if ready <= now:
            self.waiting.clear()
            self.backlog = 0
            if ready < now:
                self._fall((now - ready) // self._packet_ns)
            if not self.admits(packet, now):
                self.drops += 1
                return LOST
        return super().send(packet, now)

    def admits(self, packet: Packet, now: int) -> bool:
        """As of gw_red_admit: what does not fit moves the average, and draws, all the same."""
        fits = self.backlog + packet.length <= self.buffer_bytes
        found, average = self.backlog << 16, self._average_q16
        if self._weight_q32 == _U32:
            average = found
        elif found >= average:
            average += (found - average) * self._weight_q32 >> 32
        else:
            average -= (average - found) * self._weight_q32 >> 32
        self._average_q16 = average
        if not self._hits() or not fits:
            return fits
        if not self._ecn:
            return False
        self.mark(packet)
        return True

    def _fall(self, missed: int) -> None:
        """As if so many small packets had found an empty port."""
        if self._weight_q32 == _U32:
            return
        keep = _U32 - self._weight_q32
        average = self._average_q16
        while missed and average:
            if missed & 1:
                average = average * keep >> 32
            keep = keep * keep >> 32
            missed >>= 1
        self._average_q16 = average

    def _hits(self) -> bool:
        over = self._average_q16 - self._kmin_q16
        if over < 0:
            return False
        span = self._kmax_q16 - self._kmin_q16
        if over >= span:
            return True
        chance = self._pmax_q32 * over // span
        return chance > 0 and (chance == _U32 or self._random.u32() < chance)

"""Queue disciplines, one a file, each in both its arrangements: the port qdisc's and stock qdiscs.

A file has `own`, and `stock` where stock qdiscs alone can make the queue. docs/howto has a page on
adding one.
"""

from __future__ import annotations

from collections.abc import Mapping

from emulator.ports.disciplines import codel, dctcp, droptail, lossless, red, shared, voq
from emulator.ports.disciplines.discipline import EgressPort, Own, Stock

__all__ = ["OWN", "STOCK", "EgressPort"]

OWN: Mapping[str, Own] = {
    "droptail": droptail.own,
    "red": red.own,
    "dctcp": dctcp.own,
    "codel": codel.own,
    "fq_codel": codel.own,
    "shared": shared.own,
    "voq": voq.own,
    "lossless": lossless.own,
}
"""By a queue's `kind`: how the port qdisc makes it."""

STOCK: Mapping[str, Stock] = {
    "droptail": droptail.stock,
    "red": red.stock,
    "dctcp": dctcp.stock,
    "codel": codel.stock,
    "fq_codel": codel.stock,
}
"""By a queue's `kind`: how one stock qdisc makes it. The others need their whole switch."""

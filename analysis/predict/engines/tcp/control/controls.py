"""The congestion controls that are followed, by their names in Linux."""

from __future__ import annotations

from analysis.predict.engines.tcp.control.bbr import Bbr
from analysis.predict.engines.tcp.control.congestion import Cubic, Dctcp, Reno

CONTROLS: dict[str, type[Reno]] = {"reno": Reno, "cubic": Cubic, "dctcp": Dctcp, "bbr": Bbr}

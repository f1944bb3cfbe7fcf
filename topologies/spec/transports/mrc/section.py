"""`transport: {kind: mrc}` in a spec.

The sources of what it does are the public interface of OCP Multipath Reliable Connection 1.0
(AMD, Broadcom, Intel, Microsoft, NVIDIA, OpenAI; 2026; mrc.h and mrc_ctl.h of github.com/
opencomputeproject/OCP-Multipath-Reliable-Connection), and descriptions of it; the text of the
specification and arXiv 2605.04333 were not at hand. Numbers that are not known are keys.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from topologies.spec.transports.roce.section import Entropy, RoceTransport
from topologies.units import TimeNs


class MrcTransport(RoceTransport):
    """RoCE whose queue pairs send each packet by the path of an entropy value, bear that packets
    overtake each other, send again alone what is lost, and hear of what ports trim.

    `window` None: one and a half times the product of line rate and base RTT. `ack_every` None: 4,
    and 1 with nscc.
    """

    kind: Literal["mrc"]  # type: ignore[assignment]
    path_mtu_bytes: Literal[256, 512, 1024, 2048, 4096] = Field(default=4096, alias="path_mtu")
    qp_timeout_ns: TimeNs = Field(default=131_072, alias="qp_timeout", ge=4096, le=2**43)
    ecn: bool | None = True
    loss_recovery: Literal["selective-repeat"] = "selective-repeat"
    entropy: Entropy = Entropy()

    @model_validator(mode="after")
    def _of_many_paths(self) -> MrcTransport:
        if self.congestion_control == "hpcc":  # dctcp is refused with selective repeat
            raise ValueError(
                "`congestion_control`: found hpcc, allowed none, nscc, dcqcn, timely: telemetry is "
                "of one path"
            )
        return self

    @property
    def packets_per_ack(self) -> int:
        """How many packets of a message are sent before an acknowledgement is asked for."""
        return self.ack_every or (1 if self.congestion_control == "nscc" else 4)

    def words(self, ecn: bool) -> str:
        """With its congestion control, path MTU and entropy values."""
        return super().words(ecn).replace("RoCE", "MRC", 1).replace(", selective repeat", "")


PART = MrcTransport

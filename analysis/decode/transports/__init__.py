"""Transports in captures, by the names that `topologies.spec.transports` registers.

All TCP connections are read by one way (`analysis/decode/tcp`, `gloo`). A transport with packets of
its own finds its connections here, and says which bytes are whose. The declarations of each are in
analysis/decode/data_connection.py. How long anything took is not here: metrics say. Three names to
know: `DECODED_TRANSPORTS`, `DecodedTcp` and `DecodedRoce`.
"""

from analysis.decode.data_connection import DecodedTransport
from topologies.registration import parts
from topologies.spec.transports import TRANSPORTS

DECODED_TRANSPORTS = parts(TRANSPORTS, "analysis.decode.transports.{}", DecodedTransport)
"""By kind."""

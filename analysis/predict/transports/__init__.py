"""Transports as predictors know them, by the names that `topologies.spec.transports` registers.

All that goes through sockets is TCP's, which engines know. A transport `of_programs` carries the
messages of programs beside it: its `Carrier` has their bytes on links, the paths that routers hash
them to, and its part of `flow` and of the packet engine. How bytes are told apart in captures is
not here (analysis/decode/transports). The declarations of each are in analysis/predict/carrier.py.
Three names to know: `PREDICTED_TRANSPORTS`, `RoceCarrier` and `RoceWire`.
"""

from analysis.predict.carrier import PredictedTransport
from topologies.registration import parts
from topologies.spec.transports import TRANSPORTS

PREDICTED_TRANSPORTS = parts(TRANSPORTS, "analysis.predict.transports.{}", PredictedTransport)
"""By kind."""

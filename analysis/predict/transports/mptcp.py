"""MPTCP, whose subflows share a connection's bytes as Linux's scheduler says: predictors that
give a connection one path refuse it by themselves (`Transport.flows`)."""

from analysis.predict.transports.tcp import PART

__all__ = ["PART"]

"""The ways in which collectives are printed."""

from enum import StrEnum


class ReportStyle(StrEnum):
    """`--style`."""

    groundwire = "groundwire"
    nccl_tests = "nccl-tests"

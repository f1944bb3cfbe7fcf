"""Machines on which the virtual kernel has user code traced: slower, with the same results."""

import pytest

from emulator.virtual.processor import has_xsave
from emulator.virtual.seccomp import has_seccomp_filters

skip_where_traced = pytest.mark.skipif(
    not (has_seccomp_filters() and has_xsave()),
    reason="without seccomp filters or XSAVE, user code is traced, and its stops are not counted",
)

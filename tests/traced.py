"""Machines on which the virtual kernel has user code traced: slower, with the same results."""

import pytest

from emulator.virtual.host.features import has_seccomp_filters, has_xsave

skip_where_traced = pytest.mark.skipif(
    not (has_seccomp_filters() and has_xsave()),
    reason="without seccomp filters or XSAVE, user code is traced, and its stops are not counted",
)

"""Products of matrices on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Computing inside uses one thread of BLAS: the result does not depend on how many
    processors there are, and small products on a busy machine do not wait for each other, which
    takes twenty times as long."""
    # Not on top: ranks import what is here, and train nothing.
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield

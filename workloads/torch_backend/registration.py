"""Makes the backend known to torch.

Nothing here imports torch when it is imported itself: torch does that from within its own import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch.distributed as dist

NAME = "groundwire"


def register() -> None:
    """Register the backend; nothing when it is. torch calls this as an entry point."""
    import torch.distributed as dist

    # Without distributed support torch has no such class.
    if dist.is_available() and NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


def _create(options: Any, _: object) -> dist.ProcessGroup:
    """torch's call for a new group."""
    from workloads.torch_backend.process_group import GroundwireGroup

    ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
    return GroundwireGroup(
        options.store, options.group_rank, ranks, options.timeout, options.group_id
    )

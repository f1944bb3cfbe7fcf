"""Messages with flags among their data (`collectives.schedule.lines`), as tensors of bytes."""

from __future__ import annotations

import torch

from collectives.schedule.lines import Lines
from workloads.execution.payload.tensors import Tensors

_FLAG = 1
"""Every byte of a flag. A receiver here is told by its transport that a message has come."""


def in_lines(
    like: torch.Tensor, data: torch.Tensor | None, lines: Lines, tensors: Tensors
) -> torch.Tensor:
    """A message for as many numbers as `like` has: with this data, or room for what comes."""
    size_bytes = like.numel() * like.element_size()
    found = tensors.empty(lines.wire_bytes(size_bytes), torch.uint8)
    if data is None or not tensors.checked:
        return found
    each = found.view(-1, lines.line_bytes)
    filled = torch.zeros(len(each) * lines.data_bytes, dtype=torch.uint8)
    filled[:size_bytes] = data.view(torch.uint8)
    each[:, : lines.data_bytes] = filled.view(-1, lines.data_bytes)
    each[:, lines.data_bytes :] = _FLAG
    return found


def out_of_lines(
    message: torch.Tensor, target: torch.Tensor, lines: Lines, tensors: Tensors
) -> None:
    """Put a message's data into `target`."""
    if not tensors.checked:
        return
    data = message.view(-1, lines.line_bytes)[:, : lines.data_bytes].reshape(-1)
    target.view(torch.uint8).copy_(data[: target.numel() * target.element_size()])

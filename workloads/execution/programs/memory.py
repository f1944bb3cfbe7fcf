"""The tensors in which the blocks of a chunk lie."""

from __future__ import annotations

import torch

from collectives.program import Blocks, Buffer
from collectives.schedule.schedule import Chunk
from workloads.execution.payload.tensors import Tensors


class ChunkMemory:
    """The buffers of one chunk of a collective from `source` into `target` (one and the same in
    place). Chunks of shards are copied together, so that a program finds them one after the
    other. A switch has room for what passes, and neither input nor output."""

    def __init__(
        self,
        chunk: Chunk,
        source: torch.Tensor,
        target: torch.Tensor,
        tensors: Tensors,
        at_switch: bool = False,
    ) -> None:
        self._tensors = tensors
        program = chunk.program
        self._chunk = chunk
        self._target = target
        self._source_shards = program.input_blocks // program.pieces
        self._target_shards = program.output_blocks // program.pieces
        self._buffers: dict[Buffer, torch.Tensor] = {}
        self._scattered: torch.Tensor | None = None
        if not at_switch:
            self._buffers[Buffer.INPUT] = self._gathered(source, self._source_shards)
            if not program.in_place:
                self._buffers[Buffer.OUTPUT] = self._room(target)
        if program.scratch_blocks:
            whole = Blocks(Buffer.SCRATCH, 0, program.scratch_blocks)
            _, count = program.bounds(whole, chunk.elements)
            self._buffers[Buffer.SCRATCH] = tensors.empty(count, source.dtype)

    def view(self, blocks: Blocks) -> torch.Tensor:
        """The elements of some blocks."""
        first, end = self._chunk.program.bounds(blocks, self._chunk.elements)
        return self._buffers[blocks.buffer][first:end]

    def finish(self) -> None:
        """Put the result into its place."""
        if self._scattered is not None:
            shards = self._target.view(self._target_shards, -1)
            end = self._chunk.first + self._chunk.count
            self._tensors.copy(
                shards[:, self._chunk.first : end], self._scattered.view(self._target_shards, -1)
            )

    def _gathered(self, tensor: torch.Tensor, shards: int) -> torch.Tensor:
        end = self._chunk.first + self._chunk.count
        if shards == 1 or self._chunk.count * shards == tensor.numel():
            return tensor[self._chunk.first * shards : end * shards]
        copied = self._tensors.empty(shards * self._chunk.count, tensor.dtype)
        self._tensors.copy(
            copied.view(shards, -1), tensor.view(shards, -1)[:, self._chunk.first : end]
        )
        return copied

    def _room(self, tensor: torch.Tensor) -> torch.Tensor:
        end = self._chunk.first + self._chunk.count
        if self._target_shards == 1 or self._chunk.count * self._target_shards == tensor.numel():
            return tensor[self._chunk.first * self._target_shards : end * self._target_shards]
        count = self._target_shards * self._chunk.count
        self._scattered = self._tensors.empty(count, tensor.dtype)
        return self._scattered

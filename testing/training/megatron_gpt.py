"""A small GPT of Megatron-core, split by tensors and into a pipeline, with its distributed
optimizer: torchrun megatron_gpt.py TENSOR_PARALLEL PIPELINE_PARALLEL [sequence]"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig

WORDS, LENGTH, MICRO_BATCH, MICRO_BATCHES, STEPS = 2048, 256, 2, 4, 3


def main() -> None:
    tensor, pipeline = int(sys.argv[1]), int(sys.argv[2])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    parallel_state.initialize_model_parallel(tensor, pipeline)
    tensor_parallel.model_parallel_cuda_manual_seed(123)
    config = TransformerConfig(
        num_layers=4,
        hidden_size=512,
        num_attention_heads=8,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        sequence_parallel="sequence" in sys.argv[3:],
        pipeline_dtype=torch.bfloat16,
        params_dtype=torch.bfloat16,
        bf16=True,
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
    )
    module = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        vocab_size=WORDS,
        max_sequence_length=LENGTH,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    )
    reducing = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=True,
        overlap_param_gather=True,
        use_distributed_optimizer=True,
    )
    model = DistributedDataParallel(config, reducing, module.cuda().bfloat16())
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            lr=1e-3,
            bf16=True,
            params_dtype=torch.bfloat16,
            use_distributed_optimizer=True,
            clip_grad=1.0,
        ),
        [model],
    )
    config.grad_scale_func = optimizer.scale_loss
    mask = torch.triu(torch.ones(LENGTH, LENGTH, device="cuda", dtype=torch.bool), 1)[None, None]
    places = torch.arange(LENGTH, device="cuda").unsqueeze(0).expand(MICRO_BATCH, -1)

    def forward(_: Any, model: Any) -> tuple[torch.Tensor, Callable[[torch.Tensor], Any]]:
        words = torch.randint(0, WORDS, (MICRO_BATCH, LENGTH + 1), device="cuda")
        losses = model(words[:, :-1], places, mask, labels=words[:, 1:])
        return losses, lambda each: (each.float().mean(), {"loss": each.detach().float().mean()})

    run = get_forward_backward_func()
    for step in range(STEPS):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        told = run(
            forward_step_func=forward,
            data_iterator=None,
            model=model,
            num_microbatches=MICRO_BATCHES,
            seq_length=LENGTH,
            micro_batch_size=MICRO_BATCH,
            forward_only=False,
        )
        updated, norm, _ = optimizer.step()
        if told:
            loss = sum(each["loss"].item() for each in told) / len(told)
            print(f"step {step}: loss {loss:.4f}, norm {norm}, {updated}", flush=True)
    if dist.get_rank() == 0:
        print(f"Megatron-core: peak {torch.cuda.max_memory_allocated() >> 20} MiB", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A small Llama by Hugging Face's Accelerate, sharded by FSDP2, with accumulation, clipping and a
checkpoint that is saved and loaded: torchrun accelerated.py"""

from __future__ import annotations

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import LlamaConfig, LlamaForCausalLM


def main() -> None:
    sharding = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
    )
    accelerator = Accelerator(
        mixed_precision="bf16", fsdp_plugin=sharding, gradient_accumulation_steps=2
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=4096,
        use_cache=False,
    )
    words = torch.randint(0, 4096, (96, 256))
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    model, optimizer, batches = accelerator.prepare(
        model, optimizer, torch.utils.data.DataLoader(words, batch_size=4)
    )
    for batch in batches:
        with accelerator.accumulate(model):
            loss = model(input_ids=batch, labels=batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    losses = accelerator.gather(loss.detach())
    accelerator.print(f"Accelerate: {len(losses)} losses on {accelerator.distributed_type}")
    accelerator.save_state("state")
    accelerator.load_state("state")
    accelerator.print(f"saved and loaded, peak {torch.cuda.max_memory_allocated() >> 20} MiB")


if __name__ == "__main__":
    main()

"""A small Llama by DeepSpeed's ZeRO: torchrun zero.py STAGE [offload]"""

from __future__ import annotations

import os
import sys
from typing import Any

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM

STEPS = 3


def main() -> None:
    stage, rank = int(sys.argv[1]), int(os.environ["RANK"])
    deepspeed.init_distributed()
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    }
    if "offload" in sys.argv[2:]:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        config["zero_force_ds_cpu_optimizer"] = False
        config["optimizer"]["params"]["torch_adam"] = True
    torch.manual_seed(0)
    of_model = LlamaConfig(
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=4096,
        use_cache=False,
    )
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=stage == 3):
        model = LlamaForCausalLM(of_model)
    engine, _, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    draws = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        words = torch.randint(0, 4096, (4, 256), generator=draws).to(engine.device)
        loss = engine(input_ids=words, labels=words).loss
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint("checkpoint")
    engine.load_checkpoint("checkpoint")
    if rank == 0:
        print(f"ZeRO {stage}: peak {torch.cuda.max_memory_allocated() >> 20} MiB", flush=True)


if __name__ == "__main__":
    main()

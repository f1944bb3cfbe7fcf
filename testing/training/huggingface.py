"""A small Llama by Hugging Face's Trainer: torchrun huggingface.py [NAME=VALUE of its arguments]"""

from __future__ import annotations

import sys
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

CONFIG = LlamaConfig(
    hidden_size=512,
    intermediate_size=1376,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=4,
    vocab_size=4096,
    use_cache=False,
)


class Words(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __init__(self) -> None:
        self._words = torch.randint(0, 4096, (64, 256), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._words[index], "labels": self._words[index]}


def _value(text: str) -> Any:
    return {"True": True, "False": False}.get(text, int(text) if text.isdigit() else text)


def main() -> None:
    given = dict(word.split("=", 1) for word in sys.argv[1:])
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir="trained",
        per_device_train_batch_size=4,
        max_steps=3,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        bf16=True,
        **{name: _value(text) for name, text in given.items()},
    )
    words = Words()
    trainer = Trainer(
        model=LlamaForCausalLM(CONFIG), args=arguments, train_dataset=words, eval_dataset=words
    )
    trainer.train()
    if arguments.process_index == 0:
        print(f"Trainer: peak {torch.cuda.max_memory_allocated() >> 20} MiB", flush=True)


if __name__ == "__main__":
    main()

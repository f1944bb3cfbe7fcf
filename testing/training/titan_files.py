"""Files for torchtitan without a download: a tokenizer of bytes and lines of text, and the
configuration of its debug Llama 3: python titan_files.py"""

from __future__ import annotations

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

CONFIGURATION = """
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "titan/tokenizer"

[optimizer]
name = "AdamW"
lr = 8e-4

[training]
dataset = "c4_test"
dataset_path = "titan/text"
local_batch_size = 2
seq_len = 1024
steps = 3

[metrics]
log_freq = 1

[activation_checkpoint]
mode = "selective"
"""


def main() -> None:
    for name in ("tokenizer", "text"):
        Path("titan", name).mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    known = {letter: number for number, letter in enumerate(letters)} | {"<|end_of_text|>": 256}
    tokenizer = Tokenizer(models.BPE(vocab=known, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end_of_text|>"])
    tokenizer.save("titan/tokenizer/tokenizer.json")
    Path("titan/tokenizer/tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|end_of_text|>"})
    )
    draws = random.Random(0)
    lines = [" ".join(str(draws.randrange(1000)) for _ in range(400)) for _ in range(400)]
    text = "".join(json.dumps({"text": line}) + "\n" for line in lines)
    Path("titan/text/data.json").write_text(text)
    Path("titan/debug.toml").write_text(CONFIGURATION)


if __name__ == "__main__":
    main()

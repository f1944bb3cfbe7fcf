"""Files for torchtitan without a download: a tokenizer of bytes and lines of text, and the
configurations of its Llama 3, that for debugging and that of 8 billion parameters:
python titan_files.py"""

from __future__ import annotations

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

CONFIGURATION = """
[model]
name = "llama3"
flavor = "{flavor}"
hf_assets_path = "titan/tokenizer"

[optimizer]
name = "AdamW"
lr = 8e-4

[training]
dataset = "c4_test"
dataset_path = "titan/text"
local_batch_size = 2
seq_len = {length}
steps = 3

[metrics]
log_freq = 1

[activation_checkpoint]
mode = "selective"
selective_ac_option = "{recomputed}"
"""
# The layers that the backward pass recomputes, as torchtitan's own files of these models have it:
# every second one, or by operator all but what is costly.
CONFIGURATIONS = {
    "debug": {"flavor": "debugmodel", "length": 1024, "recomputed": "2"},
    "8b": {"flavor": "8B", "length": 8192, "recomputed": "op"},
}


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
    for name, values in CONFIGURATIONS.items():
        Path(f"titan/{name}.toml").write_text(CONFIGURATION.format(**values))


if __name__ == "__main__":
    main()

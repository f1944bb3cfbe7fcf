#!/usr/bin/env -S python3 -S -E
"""lspci of a server with virtual GPUs: a line for each. Other devices it has none."""

from __future__ import annotations

import os

CHIPS = {"H100": "GH100 [H100 SXM5 80GB]", "A100": "GA100 [A100 SXM4 80GB]",
         "V100": "GV100GL [Tesla V100 SXM2 32GB]"}  # fmt: skip

with open(os.path.join(os.environ["GROUNDWIRE_GPUS"], "devices")) as file:
    count, name = int(file.readline()), file.read().splitlines()[-1]
chip = next((chip for part, chip in CHIPS.items() if part in name), name)
for number in range(count):
    print(f"{number + 1:02x}:00.0 3D controller: NVIDIA Corporation {chip} (rev a1)")
